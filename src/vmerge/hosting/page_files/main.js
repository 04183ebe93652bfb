// The page: asks the daemon again and again, shows what it says, and says so when it says nothing.

import { Refused, ask, forgetToken, keepToken, needsToken, token } from "./ask.js";
import { Facts, Kept, say } from "./dom.js";
import { History } from "./history.js";
import { duration, level, number } from "./words.js";
import { WorkflowSection } from "./workflow.js";

const [SEEN_MILLISECONDS, UNSEEN_MILLISECONDS] = [2_000, 30_000];
const PATIENCE_MILLISECONDS = 5_000;
const OTHER_VERSION = "The daemon has another version than this page: load the page anew.";
const TOKEN = /^[\x21-\x7e]+$/;

const by = (id) => document.getElementById(id);
const summary = new Facts(by("summary"));
let workflows = new Kept(by("workflows"), () => new WorkflowSection());
let history = new History();
let levels = new Map();
const versions = new Set();
let timer = null;
/** The question under way: an answer to an earlier one, asked with another token, is not shown. */
let question = null;
let askedAt = null;
let answeredAt = null;
let problem = null;

function begin() {
  by("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    takeToken(by("token").value.trim());
  });
  by("forget").addEventListener("click", () => askForToken(""));
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && mayAsk()) look();
  });
  setInterval(showAge, 1_000);
  if (mayAsk()) look();
  else askForToken("");
}

const mayAsk = () => !needsToken || token() !== null;

function takeToken(text) {
  if (!TOKEN.test(text)) {
    say(by("token-problem"), "A token has printable ASCII characters only, and no blanks.");
    return;
  }
  say(by("token-problem"), "");
  keepToken(text);
  look();
}

/** Show nothing of the daemon any more, and ask for a token. */
function askForToken(why) {
  clearTimeout(timer);
  forgetToken();
  question = askedAt = answeredAt = problem = null;
  history = new History();
  levels = new Map();
  by("workflows").replaceChildren();
  workflows = new Kept(by("workflows"), () => new WorkflowSection());
  summary.show([]);
  say(by("daemon"), "");
  say(by("token-problem"), why);
  by("main").hidden = by("forget").hidden = true;
  by("ask").hidden = false;
  by("token").value = "";
  by("token").focus();
  document.title = "vmerge";
  showAge();
}

async function look() {
  clearTimeout(timer);
  const mine = (question = {});
  askedAt = Date.now();
  try {
    const overview = await asked();
    if (mine !== question) return;
    problem = null;
    answeredAt = Date.now();
    show(overview);
  } catch (error) {
    if (mine !== question) return;
    if (needsToken && error instanceof Refused && error.isForToken) {
      askForToken("The daemon does not take this token. See its token file, and whether it was changed.");
      return;
    }
    problem = error instanceof Refused ? error.message : "no answer";
  }
  askedAt = null;
  showAge();
  timer = setTimeout(look, document.hidden ? UNSEEN_MILLISECONDS : SEEN_MILLISECONDS);
}

async function asked() {
  const last = history.last;
  const overview = await ask(last === null ? "v1/overview" : `v1/overview?after=${last}`);
  if (!history.isOfAnother(overview)) return overview;
  history = new History();
  return ask("v1/overview");
}

function show(overview) {
  history.add(overview);
  const isFirst = by("main").hidden;
  by("main").hidden = false;
  by("forget").hidden = !needsToken;
  by("ask").hidden = true;
  if (isFirst && needsToken) by("main").focus();
  say(by("daemon"), `vmerge ${overview.version}, pid ${overview.pid}, folder ${overview.folder}`);
  summary.show(summaryOf(overview));
  const about = { history, at: overview.at, seconds: overview.history.kept_seconds };
  workflows.show(overview.workflows, (one) => one.workflow, about);
  tellNews(overview.workflows);
  versions.add(overview.version);
  document.title = titleOf(overview.workflows);
}

const streamsOf = (workflows) => workflows.flatMap((one) => one.streams);

function summaryOf({ workflows: all }) {
  const streams = streamsOf(all);
  const count = (how) => streams.filter((one) => level(one) === how).length;
  const kept = streams.reduce((total, one) => total + one.in_quarantine, 0);
  const lags = streams.map((one) => one.lag).filter((lag) => lag !== null);
  const [good, slow, off, bad] = ["good", "slow", "off", "bad"].map(count);
  return [
    ["in order", number(good), good ? "good" : "plain"],
    ["held up", number(slow), slow ? "slow" : "plain"],
    ["stopped, standing by", number(off), off ? "off" : "plain"],
    ["in error", number(bad), bad ? "bad" : "plain"],
    ["rows in quarantine", number(kept), kept ? "slow" : "plain"],
    ["greatest lag", duration(lags.length ? Math.max(...lags) : null)],
  ];
}

function titleOf(all) {
  const streams = streamsOf(all);
  const bad = streams.filter((one) => level(one) === "bad").length;
  const slow = streams.filter((one) => level(one) === "slow").length;
  const parts = [bad ? `${bad} in error` : "", slow ? `${slow} held up` : "", "vmerge"];
  return parts.filter(Boolean).join(" · ");
}

/** Tell those who hear the page what has become better or worse; figures that change all the time are not read out. */
function tellNews(all) {
  const news = [];
  const now = new Map();
  for (const { workflow, streams } of all) {
    for (const stream of streams) {
      const key = JSON.stringify([workflow, stream.stream]);
      const [before, how] = [levels.get(key), level(stream)];
      now.set(key, how);
      if (before !== undefined && before !== how) news.push(`${workflow}, stream ${stream.stream}: ${stream.doing}`);
    }
  }
  levels = now;
  if (news.length) say(by("news"), news.join(". "));
}

/** Say whether what is shown is old, and since when. The notice is read out once; its age beside it is not. */
function showAge() {
  const isOverdue = askedAt !== null && Date.now() - askedAt > PATIENCE_MILLISECONDS;
  const isStale = problem !== null || isOverdue;
  document.body.classList.toggle("stale", isStale && answeredAt !== null);
  say(by("notice"), isStale ? staleText() : versions.size > 1 ? OTHER_VERSION : "");
  say(by("age"), isStale && answeredAt !== null ? `${Math.round((Date.now() - answeredAt) / 1000)} s ago` : "");
  if (isStale) document.title = "no answer · vmerge";
}

function staleText() {
  const why = problem === null || problem === "no answer" ? "The daemon does not answer" : `The daemon refuses: ${problem}`;
  if (answeredAt === null) return `${why}.`;
  const since = new Date(answeredAt).toLocaleTimeString("en", { hour12: false });
  return `${why}. What is shown is as it was at ${since}, by this device's clock.`;
}

begin();
