// One workflow: its streams, who waits for whom, schema changes, and its log.

import { highest } from "./chart.js";
import { Kept, make, mark, say } from "./dom.js";
import { LogTable } from "./log.js";
import { COLUMNS, StreamRow } from "./stream.js";
import { counted, duration, level } from "./words.js";

let numbers = 0;

/** A workflow's section; it stays for as long as the workflow is there. */
export class WorkflowSection {
  #heading = make("h2", { id: `workflow${++numbers}` });
  #condition = make("p", { class: "condition" });
  #rows = make("tbody", { role: "rowgroup" });
  #streams = new Kept(this.#rows, () => new StreamRow());
  #waits = new Sentences("Who waits for whom");
  #changes = new Sentences("Schema changes");
  #quarantine = new Sentences("Quarantine");
  #log = new LogTable();
  node = make(
    "section",
    { class: "workflow", "aria-labelledby": this.#heading.id },
    this.#heading,
    this.#condition,
    make("table", { role: "table", "aria-labelledby": this.#heading.id, class: "streams" }, head(), this.#rows),
    make("div", { class: "aside" }, this.#waits.node, this.#changes.node, this.#quarantine.node),
    this.#log.node,
  );

  /** Show a workflow; `about` has the history, the time, and how much of it is kept. */
  show(workflow, { history, at, seconds }) {
    const name = workflow.workflow;
    const tops = workflow.streams.map((one) => highest([...history.lags(name, one.stream), { lag: one.lag }]));
    say(this.#heading, name);
    say(this.#condition, conditionOf(workflow));
    this.#streams.show(workflow.streams, (one) => one.stream, {
      workflow: name,
      history,
      at,
      seconds,
      top: Math.max(0, ...tops.filter((top) => top !== null)),
    });
    this.#waits.show(waitsOf(workflow), "Nobody waits.");
    this.#changes.show(barriersOf(workflow), passedOf(workflow.streams));
    this.#quarantine.show(quarantineOf(workflow), "No row is in quarantine.");
    this.#log.show(workflow);
  }
}

function head() {
  const cells = COLUMNS.map((column) => make("th", { role: "columnheader", scope: "col" }, column));
  return make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...cells));
}

/** A heading and sentences below it, or one that says that there is nothing. */
class Sentences {
  #list = make("ul");
  #none = make("p", { class: "none" });
  #kept = new Kept(this.#list, () => {
    const node = make("li");
    return {
      node,
      show: ({ text, level: how }) => {
        say(node, text);
        mark(node, "data-level", how);
      },
    };
  });
  node;

  constructor(title) {
    this.node = make("section", {}, make("h3", {}, title), this.#list, this.#none);
  }

  /** Show sentences as `{key, text, level}`. */
  show(sentences, otherwise) {
    this.#kept.show(sentences, (one) => one.key);
    this.#list.hidden = sentences.length === 0;
    this.#none.hidden = sentences.length > 0;
    say(this.#none, otherwise);
  }
}

function conditionOf({ streams, standby_for: other }) {
  if (other !== null) return `Stands by for ${other}`;
  const running = streams.filter((one) => one.state === "running");
  const parts = [
    counted(streams.length, "stream", "streams"),
    `${running.length} running`,
    `${running.filter((one) => one.is_at_head).length} at the head`,
  ];
  for (const [state, words] of [["stopped", "stopped"], ["error", "in error"]]) {
    const count = streams.filter((one) => one.state === state).length;
    if (count) parts.push(`${count} ${words}`);
  }
  return parts.join(", ");
}

function waitsOf({ streams, graph }) {
  const byName = new Map(streams.map((one) => [one.stream, one]));
  const edges = graph.edges.map((edge) => ({
    key: JSON.stringify(["edge", edge.from, edge.to]),
    text: edgeText(edge, byName.get(edge.from)?.blocked ?? null),
    level: byName.has(edge.from) ? level(byName.get(edge.from)) : "good",
  }));
  const cycles = graph.cycles.map((cycle) => ({
    key: JSON.stringify(["cycle", cycle]),
    text: `In a cycle: ${cycle.join(", ")}. Only together can they go on.`,
    level: "slow",
  }));
  return [...edges, ...cycles];
}

function edgeText(edge, blocked) {
  const awaited = edge.to === null ? "?" : edge.to === edge.from ? "itself" : edge.to;
  const held = (edge.key || "a key") + (edge.holder ? ` held by ${edge.holder}` : "");
  const parts = [`${edge.from} → ${awaited}: ${held}`];
  if (blocked !== null) {
    parts.push(`since ${duration(blocked.seconds)}`);
    parts.push(...distancesOf(blocked.awaited.filter((one) => one.stream === edge.to && !one.is_itself)));
    if (blocked.ends_with !== null) parts.push(`ends with ${blocked.ends_with}`);
    parts.push(...blocked.hindered.filter((one) => one.stream === edge.to).map((one) => one.text));
  }
  if (edge.is_in_cycle) parts.push("in a cycle");
  return parts.join("; ");
}

function distancesOf(awaited) {
  return awaited
    .filter((one) => one.transactions_before_fence !== null)
    .map((one) =>
      one.transactions_before_fence
        ? `${one.stream} has ${counted(one.transactions_before_fence, "transaction", "transactions")} to go until its fence`
        : `${one.stream} has reached its fence`,
    );
}

function barriersOf({ streams }) {
  return streams
    .filter((one) => one.barrier !== null)
    .map(({ stream, barrier }) => ({
      key: stream,
      text:
        `${stream} waits since ${duration(barrier.seconds)} ` +
        (barrier.awaited.length ? `for ${barrier.awaited.join(", ")} to come to the same one` : "while it is run") +
        `: ${[barrier.statement, ...barrier.hindered.map((one) => one.text)].join("; ")}`,
      level: "slow",
    }));
}

function passedOf(streams) {
  const sum = (key) => streams.reduce((total, one) => total + one.schema_changes[key], 0);
  return `No stream waits at one. ${sum("executed")} executed, ${sum("ignored")} ignored.`;
}

function quarantineOf({ workflow, streams }) {
  return streams
    .filter((one) => one.in_quarantine > 0)
    .map(({ stream, in_quarantine: count }) => ({
      key: stream,
      text: `${stream}: ${counted(count, "row", "rows")}; \`vmerge quarantine list ${workflow}\` names them.`,
      level: "slow",
    }));
}
