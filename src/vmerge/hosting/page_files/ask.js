// The way to the daemon, and the token for it. The token is in this tab's session storage and in the header of
// questions, nowhere else: never in an address, which would be kept in histories and logs.

const ANSWER_MILLISECONDS = 10_000;
// Several daemons may be served below one host name.
const KEY = `vmerge-token ${location.pathname}`;

/** Whether the daemon answers here only those who know its token. */
export const needsToken = document.body.dataset.needsToken === "yes";

/** The daemon, or what stands in front of it, gave an answer that is none. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }

  /** Whether it was because of the token. */
  get isForToken() {
    return this.status === 401;
  }
}

/** Return the token, or null. */
export function token() {
  return needsToken ? sessionStorage.getItem(KEY) : null;
}

/** Keep a token for as long as the tab lives. */
export function keepToken(text) {
  sessionStorage.setItem(KEY, text);
}

/** Forget the token. */
export function forgetToken() {
  sessionStorage.removeItem(KEY);
}

/** Ask the daemon; throw `Refused`, or whatever it is that nobody answers with. */
export async function ask(path) {
  const known = token();
  const answer = await fetch(path, {
    headers: known === null ? {} : { Authorization: `Bearer ${known}` },
    cache: "no-store",
    redirect: "error",
    signal: AbortSignal.timeout(ANSWER_MILLISECONDS),
  });
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, wording(answer.status, body));
  return body;
}

function wording(status, { error, hint }) {
  return error === undefined ? `the answer has status ${status}` : [error, hint].filter(Boolean).join(" — ");
}
