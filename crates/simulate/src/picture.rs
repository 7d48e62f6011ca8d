//! Pictures of a run: admitted requests against those of an exact fleet.

use std::fmt::Write as _;

use crate::measure::Moment;
use crate::outcome::Outcome;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The points of a sparkline.
const POINTS: usize = 60;

/// A line of bars. `scale` is the value of the highest.
pub(crate) fn sparkline(values: impl Iterator<Item = u64>, scale: u64) -> String {
    let values: Vec<u64> = values.collect();
    let chunks = values.chunks(values.len().div_ceil(POINTS).max(1));
    let heights = chunks.map(|chunk| chunk.iter().max().copied().unwrap_or(0));
    heights.map(|value| BARS[(value * (BARS.len() as u64 - 1) / scale.max(1)).min(7) as usize]).collect()
}

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 360.0;
const MARGIN: f64 = 60.0;

/// A picture as SVG: requests, admitted, exact and calls, a second.
pub fn svg(outcome: &Outcome) -> String {
    let seconds = outcome.scenario.duration.as_micros() as f64 / 1e6 / outcome.moments.len().max(1) as f64;
    let rate = |count: u64| count as f64 / seconds.max(1e-9);
    let top = outcome.moments.iter().map(|moment| rate(moment.requests.max(moment.calls))).fold(1.0, f64::max);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let (left, right, bottom) = (MARGIN, WIDTH - MARGIN / 3.0, HEIGHT - MARGIN);
    let place = |at: f64, value: f64| {
        let points = outcome.moments.len().max(2) as f64 - 1.0;
        (left + at / points * (right - left), bottom - value / top * (bottom - MARGIN / 2.0))
    };
    for share in [0.0, 0.5, 1.0] {
        let (_, y) = place(0.0, top * share);
        let _ = writeln!(text, "<line x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>");
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{:.0}</text>",
            left - 6.0,
            y + 4.0,
            top * share
        );
    }
    type Series = (&'static str, &'static str, &'static str, fn(&Moment) -> u64);
    let series: [Series; 4] = [
        ("requests", "#bbbbbb", "", |moment| moment.requests),
        ("calls to the store", "#d95f02", "", |moment| moment.calls),
        ("admitted by an exact fleet", "#7570b3", "6 4", |moment| moment.exact),
        ("admitted", "#1b9e77", "", |moment| moment.admitted),
    ];
    for (at, (name, colour, dashes, value)) in series.into_iter().enumerate() {
        let points = outcome.moments.iter().enumerate().map(|(at, moment)| {
            let (x, y) = place(at as f64, rate(value(moment)));
            format!("{x:.1},{y:.1}")
        });
        let points = points.collect::<Vec<_>>().join(" ");
        let _ = writeln!(
            text,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\" points=\"{points}\"/>"
        );
        let x = left + at as f64 * 210.0;
        let _ = writeln!(text, "<text x=\"{x}\" y=\"{}\" fill=\"{colour}\">{name}</text>", HEIGHT - 8.0);
    }
    let end = outcome.scenario.duration.as_micros() as f64 / 1e6;
    let _ = writeln!(text, "<text x=\"{right}\" y=\"{}\" text-anchor=\"end\">{end} s</text>", bottom + 18.0);
    let _ = writeln!(text, "<text x=\"{left}\" y=\"{}\">0 s</text>", bottom + 18.0);
    let _ = writeln!(text, "<text x=\"{left}\" y=\"16\">{}: a second</text>\n</svg>", escaped(&outcome.scenario.name));
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
