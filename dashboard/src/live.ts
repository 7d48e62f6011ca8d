// The live stream: one for all pages, reopened when it ends.

import type { Api } from "./api.ts";
import { errorText } from "./api.ts";
import { EventParser, retryDelay } from "./pure/events.ts";
import type { Overview, ReloadEvent, RulesEvent, Sustained } from "./types.ts";

/** Events by name. */
export interface LiveEvents {
  overview: Overview;
  rules: RulesEvent;
  sustained: Sustained;
  reload: ReloadEvent;
}

/** Whether the stream is live; if not, why. */
export type StreamState = { live: true } | { live: false; why: string };

/** A stream without data for this long is dead: the server sends something every 15 s at least. */
const SILENCE_TIMEOUT_MS = 35_000;

type Handler = (data: never) => void;

export class Live {
  #handlers = new Map<string, Set<Handler>>();
  #watchers = new Set<(state: StreamState) => void>();
  #state: StreamState = { live: false, why: "connecting" };
  #abort: AbortController | undefined;
  #withRules = false;
  #last: Overview | undefined;

  constructor(readonly api: Api) {}

  /** Whether numbers arrive. */
  get isLive(): boolean {
    return this.#state.live;
  }

  /** The last overview. */
  get last(): Overview | undefined {
    return this.#last;
  }

  /** Subscribes to events. Returns a function that unsubscribes. */
  on<K extends keyof LiveEvents>(event: K, handler: (data: LiveEvents[K]) => void): () => void {
    const handlers = this.#handlers.get(event) ?? new Set();
    this.#handlers.set(event, handlers.add(handler as Handler));
    return () => handlers.delete(handler as Handler);
  }

  /** Subscribes to the state of the stream, starting with the current one. */
  watch(watcher: (state: StreamState) => void): () => void {
    this.#watchers.add(watcher);
    watcher(this.#state);
    return () => this.#watchers.delete(watcher);
  }

  /** Opens the stream, with or without the rules' numbers. An open stream of the same kind stays. */
  open(withRules: boolean): void {
    if (this.#abort && this.#withRules === withRules) return;
    this.close();
    this.#withRules = withRules;
    this.#abort = new AbortController();
    void this.#run(this.#abort.signal);
  }

  close(): void {
    this.#abort?.abort();
    this.#abort = undefined;
  }

  async #run(signal: AbortSignal): Promise<void> {
    let failures = 0;
    while (!signal.aborted) {
      let why = "the stream ended";
      try {
        await this.#read(signal, () => (failures = 0));
      } catch (error) {
        why = errorText(error);
      }
      if (signal.aborted) return;
      failures += 1;
      const seconds = retryDelay(failures, Math.random());
      this.#setState({ live: false, why: `${why}; trying again in ${Math.ceil(seconds)} s` });
      await pause(seconds * 1000, signal);
    }
  }

  /** Reads one stream to its end. */
  async #read(outer: AbortSignal, alive: () => void): Promise<void> {
    const inner = new AbortController();
    const end = () => inner.abort();
    outer.addEventListener("abort", end);
    let silence = setTimeout(end, SILENCE_TIMEOUT_MS);
    try {
      const stream = await this.api.stream(this.#withRules ? "/admin/v1/live?rules=true" : "/admin/v1/live", inner.signal);
      const [reader, events] = [stream.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader(), new EventParser()];
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(silence);
        silence = setTimeout(end, SILENCE_TIMEOUT_MS);
        for (const message of events.push(value)) {
          alive();
          this.#setState({ live: true });
          this.#dispatch(message.event, JSON.parse(message.data));
        }
      }
    } catch (error) {
      if (inner.signal.aborted && !outer.aborted) throw new Error("the stream timed out");
      throw error;
    } finally {
      clearTimeout(silence);
      outer.removeEventListener("abort", end);
      inner.abort();
    }
  }

  #dispatch(event: string, data: unknown): void {
    if (event === "overview") this.#last = data as Overview;
    for (const handler of this.#handlers.get(event) ?? []) handler(data as never);
  }

  #setState(state: StreamState): void {
    if (state.live && this.#state.live) return;
    this.#state = state;
    for (const watcher of this.#watchers) watcher(state);
  }
}

/** Waits, unless aborted. */
function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
