// Server-sent events out of pieces of text, and how long to wait before asking for them again.

/** One event. */
export interface Sent {
  event: string;
  data: string;
}

/** The longest event that is waited for: thousands of rules are far below it. */
export const MOST_CHARACTERS = 16 * 1024 * 1024;

/** The longest wait before the stream is asked for again, in seconds. */
export const LONGEST_WAIT = 15;

/** Puts events together. A piece may end anywhere, also within a line's end. */
export class Reader {
  #rest = "";
  #event = "";
  #data: string[] = [];
  #length = 0;

  /** The events that are whole with this piece. */
  push(piece: string): Sent[] {
    const lines = (this.#rest + piece).split("\n");
    this.#rest = lines.pop() ?? "";
    const events: Sent[] = [];
    for (const line of lines) {
      const sent = this.#line(line.endsWith("\r") ? line.slice(0, -1) : line);
      if (sent) events.push(sent);
    }
    if (this.#rest.length + this.#length > MOST_CHARACTERS) throw new Error("an event has no end");
    return events;
  }

  #line(line: string): Sent | undefined {
    if (line === "") {
      const sent = this.#data.length > 0 ? { event: this.#event || "message", data: this.#data.join("\n") } : undefined;
      this.#event = "";
      this.#data = [];
      this.#length = 0;
      return sent;
    }
    const colon = line.indexOf(":");
    const [field, value] = colon < 0 ? [line, ""] : [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, "")];
    // What begins with a colon is a comment: somebody is there, and no more.
    if (field === "event") this.#event = value;
    if (field === "data") {
      this.#data.push(value);
      this.#length += value.length;
    }
    return undefined;
  }
}

/**
 * How many seconds to wait after so many failures in a row: twice as long each time, up to a bound.
 *
 * `chance`, 0 to 1, spreads those who lost the same server at the same moment.
 */
export function wait(failures: number, chance: number): number {
  return Math.min(LONGEST_WAIT, 2 ** Math.max(0, failures - 1)) * (0.5 + chance / 2);
}
