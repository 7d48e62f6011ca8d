// The live stream: one for the whole page, asked for again when it ends.

import type { Api } from "./api.ts";
import { inWords } from "./api.ts";
import { Reader, wait } from "./pure/events.ts";
import type { Overview, ReloadEvent, RulesEvent, Sustained } from "./types.ts";

/** What is told, by the event's name. */
export interface Told {
  overview: Overview;
  rules: RulesEvent;
  sustained: Sustained;
  reload: ReloadEvent;
}

/** Whether what is shown is of now; if not, why. */
export type State = { live: true } | { live: false; why: string };

/** A stream that says nothing for so long is gone: the server says something every 15 s at least. */
const SILENCE_MS = 35_000;

type Hearer = (data: never) => void;

export class Live {
  #hearers = new Map<string, Set<Hearer>>();
  #watchers = new Set<(state: State) => void>();
  #state: State = { live: false, why: "connecting" };
  #abort: AbortController | undefined;
  #withRules = false;
  #last: Overview | undefined;

  constructor(readonly api: Api) {}

  /** The last overview that was told. */
  get last(): Overview | undefined {
    return this.#last;
  }

  /** Hears events until the returned function is called. */
  on<K extends keyof Told>(event: K, hear: (data: Told[K]) => void): () => void {
    const hearers = this.#hearers.get(event) ?? new Set();
    this.#hearers.set(event, hearers.add(hear as Hearer));
    return () => hearers.delete(hear as Hearer);
  }

  /** Hears whether the stream is live, first of all how it is now. */
  watch(hear: (state: State) => void): () => void {
    this.#watchers.add(hear);
    hear(this.#state);
    return () => this.#watchers.delete(hear);
  }

  /** Opens the stream, with the rules' numbers or without. One that is open as it is wanted stays. */
  open(withRules: boolean): void {
    if (this.#abort && this.#withRules === withRules) return;
    this.close();
    this.#withRules = withRules;
    this.#abort = new AbortController();
    void this.#keep(this.#abort.signal);
  }

  close(): void {
    this.#abort?.abort();
    this.#abort = undefined;
  }

  async #keep(signal: AbortSignal): Promise<void> {
    let failures = 0;
    while (!signal.aborted) {
      let why = "the stream ended";
      try {
        await this.#read(signal, () => (failures = 0));
      } catch (error) {
        why = inWords(error);
      }
      if (signal.aborted) return;
      failures += 1;
      const seconds = wait(failures, Math.random());
      this.#become({ live: false, why: `${why}; trying again in ${Math.ceil(seconds)} s` });
      await pause(seconds * 1000, signal);
    }
  }

  /** Reads one stream to its end. */
  async #read(outer: AbortSignal, alive: () => void): Promise<void> {
    const inner = new AbortController();
    const end = () => inner.abort();
    outer.addEventListener("abort", end);
    let silence = setTimeout(end, SILENCE_MS);
    try {
      const stream = await this.api.stream(this.#withRules ? "/admin/v1/live?rules=true" : "/admin/v1/live", inner.signal);
      const [reader, events] = [stream.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader(), new Reader()];
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(silence);
        silence = setTimeout(end, SILENCE_MS);
        for (const sent of events.push(value)) {
          alive();
          this.#become({ live: true });
          this.#tell(sent.event, JSON.parse(sent.data));
        }
      }
    } catch (error) {
      if (inner.signal.aborted && !outer.aborted) throw new Error("the stream fell silent");
      throw error;
    } finally {
      clearTimeout(silence);
      outer.removeEventListener("abort", end);
      inner.abort();
    }
  }

  #tell(event: string, data: unknown): void {
    if (event === "overview") this.#last = data as Overview;
    for (const hear of this.#hearers.get(event) ?? []) hear(data as never);
  }

  #become(state: State): void {
    if (state.live && this.#state.live) return;
    this.#state = state;
    for (const hear of this.#watchers) hear(state);
  }
}

/** Waits, or until it is no longer wanted. */
function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
