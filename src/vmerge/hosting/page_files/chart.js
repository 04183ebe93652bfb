// A stream's lag over the last hour as a small drawing.

import { draw, mark } from "./dom.js";
import { duration } from "./words.js";

const [WIDTH, HEIGHT] = [180, 36];
const LEAST_TOP_SECONDS = 1;

/** Return the highest lag of some points, or null. */
export function highest(points) {
  const known = points.map(({ lag }) => lag).filter((lag) => lag !== null);
  return known.length ? Math.max(...known) : null;
}

/** One drawing. Each column shows the highest lag of its time, so that no peak falls between two. */
export class LagChart {
  #line = draw("path", { class: "line" });
  #area = draw("path", { class: "area" });
  node = draw(
    "svg",
    { class: "chart", role: "img", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" },
    draw("line", { class: "ground", x1: 0, y1: HEIGHT - 0.5, x2: WIDTH, y2: HEIGHT - 0.5 }),
    this.#area,
    this.#line,
  );

  /** Draw points from `now - seconds` to `now`; `top` is the lag at the upper edge. */
  show(points, now, seconds, top) {
    const stretches = stretchesOf(columnsOf(points, now, seconds), Math.max(top, LEAST_TOP_SECONDS));
    mark(this.#line, "d", stretches.map((stretch) => `M${stretch.join("L")}`).join(""));
    mark(this.#area, "d", stretches.map(areaOf).join(""));
    const peak = highest(points);
    mark(this.node, "aria-label", peak === null ? "no lag is known" : `lag in the last hour: at most ${duration(peak)}`);
  }
}

// Columns lie at fixed times, so that a drawing moves on without changing its shape.
function columnsOf(points, now, seconds) {
  const width = seconds / WIDTH;
  const last = Math.floor(now / width);
  const columns = Array(WIDTH).fill(null);
  for (const { at, lag } of points) {
    const place = Math.floor(at / width) - last + WIDTH - 1;
    if (lag !== null && place >= 0 && place < WIDTH) columns[place] = Math.max(columns[place] ?? 0, lag);
  }
  return columns;
}

// Stretches of known lags, each a list of points. A column has the width of one, so that a single one can be seen.
function stretchesOf(columns, top) {
  const stretches = [];
  let open = null;
  columns.forEach((lag, place) => {
    if (lag === null) {
      open = null;
      return;
    }
    if (open === null) stretches.push((open = []));
    const height = (HEIGHT - 1 - (lag / top) * (HEIGHT - 3)).toFixed(2);
    open.push(`${place} ${height}`, `${place + 1} ${height}`);
  });
  return stretches;
}

function areaOf(stretch) {
  const [first, last] = [stretch[0].split(" ")[0], stretch.at(-1).split(" ")[0]];
  return `M${first} ${HEIGHT}L${stretch.join("L")}L${last} ${HEIGHT}Z`;
}
