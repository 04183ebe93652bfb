// One stream: a row of its workflow's table.

import { LagChart, highest } from "./chart.js";
import { Facts, make, mark, say } from "./dom.js";
import { counted, duration, instant, known, level, number } from "./words.js";

export const COLUMNS = ["Stream", "State", "Doing", "Lag", "Lag, last hour", "Behind", "Tx/s", "Applied", "Quarantine"];

// On a narrow screen each row is a card, and what is a table by its look no longer must stay one by its roles.
function cell(column, ...children) {
  const isHead = column === COLUMNS[0];
  const attributes = { role: isHead ? "rowheader" : "cell", "data-column": column };
  return make(isHead ? "th" : "td", isHead ? { ...attributes, scope: "row" } : attributes, ...children);
}

/** A stream's row; it stays for as long as the stream is there. */
export class StreamRow {
  #state = make("span", { class: "state" });
  #doing = make("span", { class: "doing" });
  #chart = new LagChart();
  #peak = make("span", { class: "peak" });
  #facts = make("dl", { class: "facts" });
  #details = make("details", {}, make("summary", {}, "More"), this.#facts);
  #pairs = new Facts(this.#facts);
  #name = cell("Stream");
  #lag = cell("Lag");
  #behind = cell("Behind");
  #rate = cell("Tx/s");
  #applied = cell("Applied");
  #quarantine = cell("Quarantine");
  node = make(
    "tr",
    { role: "row" },
    this.#name,
    cell("State", this.#state),
    cell("Doing", this.#doing, this.#details),
    this.#lag,
    cell("Lag, last hour", this.#chart.node, this.#peak),
    this.#behind,
    this.#rate,
    this.#applied,
    this.#quarantine,
  );

  /** Show a stream; `about` has the workflow's name, the history, the time, and the top of all charts. */
  show(stream, { workflow, history, at, seconds, top }) {
    const points = [...history.lags(workflow, stream.stream), { at, lag: stream.lag }];
    const [rate, peak] = [history.rate(workflow, stream.stream), highest(points)];
    mark(this.node, "data-level", level(stream));
    mark(this.node, "data-stream", stream.stream);
    say(this.#name, stream.stream);
    say(this.#state, stream.state);
    say(this.#doing, stream.doing);
    say(this.#lag, duration(stream.lag));
    this.#chart.show(points, at, seconds, top);
    say(this.#peak, peak === null ? "" : `at most ${duration(peak)}`);
    say(this.#behind, known(stream.transactions_behind, number));
    say(this.#rate, rate === null ? "–" : rate >= 10 || rate === 0 ? number(Math.round(rate)) : rate.toFixed(1));
    say(this.#applied, number(stream.transactions));
    say(this.#quarantine, number(stream.in_quarantine));
    mark(this.#quarantine, "data-level", stream.in_quarantine > 0 ? "slow" : "plain");
    mark(this.#details.firstElementChild, "aria-label", `More about ${stream.stream}`);
    this.#pairs.show(factsOf(stream));
  }
}

function factsOf(stream) {
  const { conflicts, schema_changes: changes, waited_seconds: waited } = stream;
  return [
    ["phase", stream.phase],
    ["message", stream.message || "–"],
    ["applied position", stream.applied || "–"],
    ["last commit applied", instant(stream.applied_at)],
    ["lag by commit time", duration(stream.lag_seconds)],
    ["lag by heartbeat", duration(stream.heartbeat_lag_seconds)],
    ["source purges in", purgeOf(stream)],
    ["stops", stopOf(stream)],
    ["waited", listed(waited, (seconds) => duration(seconds))],
    ["conflicts", listed({ waits: conflicts.waits, jumps: conflicts.jumps, "joint commits": conflicts.joints }, number)],
    ["verdicts", listed(conflicts.verdicts, number)],
    ["quarantined", `${counted(conflicts.quarantined, "row", "rows")}, ${number(conflicts.returned)} came back`],
    ["schema changes", listed(changes, number)],
    ["restarts", stream.restarts ? listed(stream.restart_causes, number) : "0"],
    ["lock conflicts", number(stream.lock_conflicts)],
    ["temporary files", `${number(Math.ceil(stream.spool_bytes / 1024))} KiB`],
    ["batch limit", counted(stream.batch_limit, "transaction", "transactions")],
  ];
}

function purgeOf({ purge_in_seconds: seconds, purge_unknown: why }) {
  return seconds === null ? `– (${why})` : duration(seconds);
}

function stopOf({ stops_at: stop }) {
  return stop === null ? "–" : `in ${counted(stop.missing, "transaction", "transactions")}, at ${stop.position}`;
}

function listed(figures, words) {
  return Object.entries(figures)
    .map(([name, figure]) => `${name.replaceAll("_", " ")} ${words(figure)}`)
    .join(", ");
}
