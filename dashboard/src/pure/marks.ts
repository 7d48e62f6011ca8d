// What changed and when: the text of an event, and the marks on a chart.

import type { ServerEvent } from "../types.ts";

/** A mark on a chart: one event, or several that are too close to tell apart. */
export interface Mark {
  /** Seconds since 1970. */
  at: number;
  kind: string;
  text: string;
}

const ACTIONS: Record<string, string> = {
  "switch.put": "switched",
  "switch.delete": "switch removed",
  "block.put": "blocked",
  "block.delete": "block ended",
  "emergency.put": "emergency declared",
  "emergency.delete": "emergency ended",
  "emergency.renew": "emergency renewed",
  "lease.off": "leases switched off",
  "lease.on": "leases switched on",
  "lease.purge": "leases purged",
  "gateway.shedding-enforce": "shedding of the gateway enforced",
  "gateway.shedding-shadow": "shedding of the gateway switched to shadow",
  "gateway.shedding-off": "shedding of the gateway switched off",
  "rule.put": "rule written",
  "rule.delete": "rule deleted",
  "rule.rollback": "rule rolled back",
  "rule.state": "rule changed its state",
};

/** An event as a short sentence. */
export function eventText(event: ServerEvent): string {
  const action = ACTIONS[event.text];
  if (event.name === null && event.by === null) return event.kind === "reload_failed" ? `rules could not be loaded: ${event.text}` : event.text;
  const target = [event.domain, event.name].filter((part) => part !== null && part !== "").join(" · ") || "everything";
  const who = event.by ? ` by ${event.by}` : "";
  return `${target}: ${action ?? event.text.replace(".", " ")}${who}${event.reason ? ` (${event.reason})` : ""}`;
}

/** Events of a range as marks; those within `apart` seconds of each other are one. */
export function marks(events: ServerEvent[], from: number, to: number, apart: number): Mark[] {
  const all: Mark[] = [];
  const sorted = events.map((event) => ({ at: Date.parse(event.at) / 1000, event })).filter(({ at }) => at >= from && at <= to).sort((one, other) => one.at - other.at);
  for (const { at, event } of sorted) {
    const last = all.at(-1);
    if (last && at - last.at < apart) {
      last.text = `${last.text}; ${eventText(event)}`;
      if (RANK.indexOf(event.kind) < RANK.indexOf(last.kind)) last.kind = event.kind;
    } else {
      all.push({ at, kind: event.kind, text: eventText(event) });
    }
  }
  return all;
}

/** The kind that stands for several: the first of these. */
const RANK = ["store", "reload_failed", "signal", "emergency", "switch", "block", "lease", "gateway", "start", "rule", "reload"];
