// A parser of server-sent events, and the delay before reconnecting.

/** One event. */
export interface ServerEvent {
  event: string;
  data: string;
}

/** The maximal length of an event: thousands of rules are far below it. */
export const MAX_CHARACTERS = 16 * 1024 * 1024;

/** The maximal delay before reconnecting, in seconds. */
export const MAX_WAIT = 15;

/** Assembles events. A piece may end anywhere, even within a line break. */
export class EventParser {
  #rest = "";
  #event = "";
  #data: string[] = [];
  #length = 0;

  /** The events that this piece completes. */
  push(piece: string): ServerEvent[] {
    const lines = (this.#rest + piece).split("\n");
    this.#rest = lines.pop() ?? "";
    const events: ServerEvent[] = [];
    for (const line of lines) {
      const sent = this.#line(line.endsWith("\r") ? line.slice(0, -1) : line);
      if (sent) events.push(sent);
    }
    if (this.#rest.length + this.#length > MAX_CHARACTERS) throw new Error("an event is too long");
    return events;
  }

  #line(line: string): ServerEvent | undefined {
    if (line === "") {
      const sent = this.#data.length > 0 ? { event: this.#event || "message", data: this.#data.join("\n") } : undefined;
      this.#event = "";
      this.#data = [];
      this.#length = 0;
      return sent;
    }
    const colon = line.indexOf(":");
    const [field, value] = colon < 0 ? [line, ""] : [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, "")];
    // Lines that begin with a colon are comments.
    if (field === "event") this.#event = value;
    if (field === "data") {
      this.#data.push(value);
      this.#length += value.length;
    }
    return undefined;
  }
}

/**
 * The delay in seconds after a number of consecutive failures: exponential, up to a maximum.
 *
 * `chance`, 0 to 1, is jitter for clients that lost the same server at the same time.
 */
export function retryDelay(failures: number, chance: number): number {
  return Math.min(MAX_WAIT, 2 ** Math.max(0, failures - 1)) * (0.5 + chance / 2);
}
