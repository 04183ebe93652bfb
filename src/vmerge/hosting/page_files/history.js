// What the page remembers of earlier answers: each stream's lag over an hour, and how fast it was going just now.

const RATE_SECONDS = 8;

/** Earlier answers of one daemon process. */
export class History {
  #times = [];
  #lags = new Map();
  #counts = new Map();
  #process = null;

  /** The time that the daemon need not tell the lags before, or null. */
  get last() {
    return this.#times.at(-1) ?? null;
  }

  /** Whether an answer comes from another process than the earlier ones: what it was asked for is then too little. */
  isOfAnother(overview) {
    return this.#process !== null && this.#process !== processOf(overview);
  }

  /** Take an answer in. */
  add(overview) {
    this.#process = processOf(overview);
    const { times, streams, kept_seconds: kept } = overview.history;
    const known = this.#times.length;
    const gone = this.#times.filter((time) => time < overview.at - kept).length;
    const lags = new Map();
    for (const { workflow, stream, lags: newer } of streams) {
      const key = keyOf(workflow, stream);
      const older = this.#lags.get(key) ?? Array(known).fill(null);
      lags.set(key, [...older, ...newer].slice(gone));
    }
    this.#lags = lags;
    this.#times = [...this.#times, ...times].slice(gone);
    this.#count(overview);
  }

  #count({ at, workflows }) {
    const counts = new Map();
    for (const { workflow, streams } of workflows) {
      for (const { stream, transactions } of streams) {
        const key = keyOf(workflow, stream);
        const recent = (this.#counts.get(key) ?? []).filter((one) => one.at >= at - RATE_SECONDS);
        counts.set(key, [...recent, { at, transactions }]);
      }
    }
    this.#counts = counts;
  }

  /** Return a stream's lags as `{at, lag}`, oldest first; the lag is null where it was not known. */
  lags(workflow, stream) {
    const lags = this.#lags.get(keyOf(workflow, stream)) ?? [];
    return lags.map((lag, place) => ({ at: this.#times[place], lag }));
  }

  /** Return a stream's transactions per second over the last moments, or null. */
  rate(workflow, stream) {
    const recent = this.#counts.get(keyOf(workflow, stream)) ?? [];
    const [first, last] = [recent[0], recent.at(-1)];
    const seconds = last === undefined ? 0 : last.at - first.at;
    const count = seconds > 0 ? last.transactions - first.transactions : -1;
    return count < 0 ? null : count / seconds;
  }
}

function processOf({ pid, begun_at }) {
  return `${pid} ${begun_at}`;
}

function keyOf(workflow, stream) {
  return JSON.stringify([workflow, stream]);
}
