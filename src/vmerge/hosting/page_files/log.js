// A workflow's log. It is read from the target, so it is asked for when the status says that something has happened,
// and otherwise twice a minute.

import { ask } from "./ask.js";
import { Kept, make, say } from "./dom.js";

const ENTRIES = 50;
const [LEAST_MILLISECONDS, USUAL_MILLISECONDS] = [5_000, 30_000];
// A conflict is written to the log a moment after the status has counted it.
const WRITTEN_MILLISECONDS = 3_000;
const COLUMNS = ["Time", "Stream", "Kind", "Message"];

/** A log's table; the newest entry stands first. */
export class LogTable {
  #body = make("tbody", { role: "rowgroup" });
  #kept = new Kept(this.#body, () => new Entry());
  #problem = make("p", { class: "problem" });
  #table = make(
    "table",
    { role: "table", class: "log", "aria-label": "Log, the newest first" },
    make(
      "thead",
      { role: "rowgroup" },
      make("tr", { role: "row" }, ...COLUMNS.map((one) => make("th", { role: "columnheader", scope: "col" }, one))),
    ),
    this.#body,
  );
  node = make("section", {}, make("h3", {}, "Log"), this.#problem, this.#table);
  #askedAt = -Infinity;
  #dueAt = -Infinity;
  #seen = null;
  #isAsking = false;

  /** Look whether a workflow's log has to be asked for. */
  show(workflow) {
    const now = performance.now();
    const seen = JSON.stringify(workflow.streams.map((one) => [one.state, one.conflicts, one.schema_changes, one.restarts]));
    if (seen !== this.#seen && this.#seen !== null) this.#dueAt = Math.min(this.#dueAt, now + WRITTEN_MILLISECONDS);
    this.#seen = seen;
    if (!this.#isAsking && now >= Math.max(this.#dueAt, this.#askedAt + LEAST_MILLISECONDS)) {
      this.#ask(workflow.workflow, now);
    }
  }

  async #ask(workflow, now) {
    this.#isAsking = true;
    this.#askedAt = now;
    this.#dueAt = now + USUAL_MILLISECONDS;
    try {
      const { entries } = await ask(`v1/log?${new URLSearchParams({ workflow, limit: ENTRIES })}`);
      this.#kept.show(entries.reverse(), (entry) => entry.id);
      this.#table.hidden = entries.length === 0;
      if (entries.length === 0) this.#dueAt = now;
      say(this.#problem, entries.length ? "" : "The log has no entry.");
    } catch (problem) {
      this.#dueAt = now;
      say(this.#problem, `The log cannot be read: ${problem.message}`);
    } finally {
      this.#isAsking = false;
    }
  }
}

class Entry {
  #cells = COLUMNS.map((column) => make("td", { role: "cell", "data-column": column }));
  node = make("tr", { role: "row" }, ...this.#cells);

  show({ happened_at: at, stream, kind, message }) {
    [at.slice(0, 19), stream, kind, message].forEach((text, place) => say(this.#cells[place], text));
  }
}
