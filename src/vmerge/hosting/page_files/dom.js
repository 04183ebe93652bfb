// Elements. Text gets into the page here alone, and always as text: names and messages may look like markup.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element; children are elements or texts. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Make an element of a drawing. */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Show a text. One that stands there already is left alone: it may be selected, or be read aloud. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Set an attribute, if it has another value. */
export function mark(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/** Children of a node, one for each item, kept from one showing to the next: focus and what is unfolded stay. */
export class Kept {
  #parent;
  #create;
  #views = new Map();

  /** `create()` returns a view: its `node`, and `show(item, …)`. */
  constructor(parent, create) {
    this.#parent = parent;
    this.#create = create;
  }

  /** Show these items, each known by a key. */
  show(items, keyOf, ...more) {
    const keys = new Set(items.map(keyOf));
    for (const [key, view] of this.#views) {
      if (!keys.has(key)) {
        view.node.remove();
        this.#views.delete(key);
      }
    }
    items.forEach((item, place) => {
      const key = keyOf(item);
      if (!this.#views.has(key)) this.#views.set(key, this.#create());
      const view = this.#views.get(key);
      if (this.#parent.children[place] !== view.node) {
        this.#parent.insertBefore(view.node, this.#parent.children[place] ?? null);
      }
      view.show(item, ...more);
    });
  }
}

/** Pairs of a term and its text, as the children of a `dl`. */
export class Facts {
  #kept;

  constructor(list) {
    this.#kept = new Kept(list, () => {
      const [term, text] = [make("dt"), make("dd")];
      return {
        node: make("div", {}, term, text),
        show: ([name, value, level]) => {
          say(term, name);
          say(text, value);
          mark(text, "data-level", level ?? "plain");
        },
      };
    });
  }

  /** Show `[term, text, level]` each; the level may be left out. */
  show(pairs) {
    this.#kept.show(pairs, ([name]) => name);
  }
}
