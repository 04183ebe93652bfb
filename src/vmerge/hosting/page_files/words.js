// Numbers and conditions in words. The daemon words what a stream is doing; what is here, only the page needs.

const BRIEF_SECONDS = 5;

/** Put a time into words; "–" when it is not known. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.floor(seconds);
  const [minutes, hours, days] = [Math.floor(whole / 60), Math.floor(whole / 3600), Math.floor(whole / 86400)];
  if (hours < 1) return `${minutes} min ${whole % 60} s`;
  if (days < 1) return `${hours} h ${minutes % 60} min`;
  return `${days} d ${hours % 24} h`;
}

/** Put a number into words, digits in groups. */
export function number(value) {
  return value.toLocaleString("en");
}

/** Put a figure into words; "–" when it is not known. */
export function known(value, words) {
  return value === null ? "–" : words(value);
}

/** Put a number of things into words. */
export function counted(value, one, many) {
  return `${number(value)} ${value === 1 ? one : many}`;
}

/** Put an instant into words, as the log does. */
export function instant(seconds) {
  if (seconds === null) return "–";
  return `${new Date(seconds * 1000).toISOString().replace("T", " ").replace("Z", "")} UTC`;
}

/** Tell how a stream is: `bad` needs a person, `slow` is watched, `off` is as an operator said, `good` needs nobody. */
export function level(stream) {
  if (stream.state === "error") return "bad";
  if (stream.state === "stopped" || stream.phase === "standby") return "off";
  if (stream.is_purged_soon || isHeldUp(stream) || ["backing off", "waiting for a lock"].includes(stream.phase)) return "slow";
  return "good";
}

// Waits of moments are a busy merge's daily life.
function isHeldUp(stream) {
  return [stream.blocked, stream.barrier].some((wait) => wait !== null && wait.seconds >= BRIEF_SECONDS);
}
