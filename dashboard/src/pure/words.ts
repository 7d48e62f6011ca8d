// Numbers and times as people read them. No clock in here: what is now is an argument.

/** What stands where there is no number. */
export const NONE = "–";

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** A count: `1,234`, `12.3 k`, `4.56 M`. */
export function count(number: number): string {
  if (Math.abs(number) < 10_000) return whole.format(number);
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"]] as const) {
    if (Math.abs(number) >= size) return `${digits(number / size)} ${unit}`;
  }
  // 999,960 is a million when it is rounded.
  return Math.abs(number) >= 999_500 ? "1.00 M" : `${digits(number / 1e3)} k`;
}

/** So many a second. */
export function rate(perSecond: number): string {
  if (perSecond === 0) return "0";
  if (perSecond < 0.01) return "< 0.01";
  if (perSecond < 9_999.5) return perSecond < 100 ? digits(perSecond) : whole.format(perSecond);
  return count(perSecond);
}

/** Three digits that count. */
function digits(number: number): string {
  const size = Math.abs(number);
  return number.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

/** A part of a whole, 1 being all of it. */
export function percent(ratio: number): string {
  const parts = ratio * 100;
  if (parts > 0 && parts < 1) return "< 1 %";
  // What is not all used must not read as if it were.
  return `${ratio < 1 ? Math.min(99, Math.round(parts)) : Math.round(parts)} %`;
}

/** How long something takes: `320 µs`, `4.10 ms`, `1.20 s`. */
export function took(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return NONE;
  if (seconds < 0.000_999_5) return `${Math.round(seconds * 1e6)} µs`;
  return seconds < 0.999_5 ? `${digits(seconds * 1e3)} ms` : `${digits(seconds)} s`;
}

/** A stretch of time, in its largest unit and the one below: `2 d 3 h`, `41 s`. */
export function stretch(seconds: number): string {
  const units = [[86_400, "d"], [3_600, "h"], [60, "min"], [1, "s"]] as const;
  const total = Math.max(0, Math.round(seconds));
  const at = units.findIndex(([size]) => total >= size);
  if (at < 0) return "0 s";
  const [size, unit] = units[at]!;
  const below = units[at + 1];
  const rest = below ? Math.floor((total % size) / below[0]) : 0;
  return `${Math.floor(total / size)} ${unit}${below && rest > 0 ? ` ${rest} ${below[1]}` : ""}`;
}

/** How long ago a moment was, or how long it is until it. */
export function since(moment: string, now: number): string {
  const seconds = (now - Date.parse(moment)) / 1000;
  if (Number.isNaN(seconds)) return moment;
  return seconds >= 0 ? `${stretch(seconds)} ago` : `in ${stretch(-seconds)}`;
}

/** A moment as a clock on the wall and a calendar show it, to the second, in UTC as the server's own logs do. */
export function moment(text: string | null | undefined): string {
  if (!text) return NONE;
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? text : `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** A limit as the API writes it, in one text. */
export function limit(of: { requests_per_unit?: number; unit?: string; limit?: string }): string {
  if (of.limit !== undefined) return of.limit;
  return of.requests_per_unit === undefined ? NONE : `${whole.format(of.requests_per_unit)}/${of.unit ?? "?"}`;
}

/** Some, with the word for them. */
export function some(number: number, one: string, many = `${one}s`): string {
  return `${whole.format(number)} ${number === 1 ? one : many}`;
}
