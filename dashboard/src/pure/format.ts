// Formats numbers and times. The current time is an argument.

/** Replaces a missing value. */
export const NONE = "–";

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** A count: `1,234`, `12.3 k`, `4.56 M`. */
export function count(number: number): string {
  if (Math.abs(number) < 10_000) return whole.format(number);
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"]] as const) {
    if (Math.abs(number) >= size) return `${digits(number / size)} ${unit}`;
  }
  // 999,960 rounds to a million.
  return Math.abs(number) >= 999_500 ? "1.00 M" : `${digits(number / 1e3)} k`;
}

/** A rate per second. */
export function rate(perSecond: number): string {
  if (perSecond === 0) return "0";
  if (perSecond < 0.01) return "< 0.01";
  if (perSecond < 9_999.5) return perSecond < 100 ? digits(perSecond) : whole.format(perSecond);
  return count(perSecond);
}

/** Three significant digits. */
function digits(number: number): string {
  const size = Math.abs(number);
  return number.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

/** A ratio as percent. */
export function percent(ratio: number): string {
  const parts = ratio * 100;
  if (parts > 0 && parts < 1) return "< 1 %";
  // Anything below 1 must not read as 100 %.
  return `${ratio < 1 ? Math.min(99, Math.round(parts)) : Math.round(parts)} %`;
}

/** A latency: `320 µs`, `4.10 ms`, `1.20 s`. */
export function took(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return NONE;
  if (seconds < 0.000_999_5) return `${Math.round(seconds * 1e6)} µs`;
  return seconds < 0.999_5 ? `${digits(seconds * 1e3)} ms` : `${digits(seconds)} s`;
}

/** A duration in its largest two units: `2 d 3 h`, `41 s`. */
export function duration(seconds: number): string {
  const units = [[86_400, "d"], [3_600, "h"], [60, "min"], [1, "s"]] as const;
  const total = Math.max(0, Math.round(seconds));
  const at = units.findIndex(([size]) => total >= size);
  if (at < 0) return "0 s";
  const [size, unit] = units[at]!;
  const below = units[at + 1];
  const rest = below ? Math.floor((total % size) / below[0]) : 0;
  return `${Math.floor(total / size)} ${unit}${below && rest > 0 ? ` ${rest} ${below[1]}` : ""}`;
}

/** The time since a moment, or until it. */
export function since(moment: string, now: number): string {
  const seconds = (now - Date.parse(moment)) / 1000;
  if (Number.isNaN(seconds)) return moment;
  return seconds >= 0 ? `${duration(seconds)} ago` : `in ${duration(-seconds)}`;
}

/** A timestamp to the second, in UTC as in the server's logs. */
export function timestamp(text: string | null | undefined): string {
  if (!text) return NONE;
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? text : `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** A limit of the API as text. */
export function limit(of: { requests_per_unit?: number; unit?: string; limit?: string }): string {
  if (of.limit !== undefined) return of.limit;
  return of.requests_per_unit === undefined ? NONE : `${whole.format(of.requests_per_unit)}/${of.unit ?? "?"}`;
}

/** A number with its noun. */
export function plural(number: number, one: string, many = `${one}s`): string {
  return `${whole.format(number)} ${number === 1 ? one : many}`;
}

/** The time of day with milliseconds, in UTC. */
export function clock(milliseconds: number): string {
  return new Date(milliseconds).toISOString().slice(11, 23);
}

/** A stretch of time: `14:32:17.120`, `14:32:17.120 – 19.480`. */
export function span(from: number, to: number): string {
  const [first, last] = [clock(from), clock(to)];
  if (from === to) return first;
  return first.slice(0, 6) === last.slice(0, 6) ? `${first} – ${last.slice(6)}` : `${first} – ${last}`;
}
