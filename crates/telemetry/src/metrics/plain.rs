//! The older Prometheus text format, for clients that do not accept OpenMetrics: `curl`, older scrapers, `promtool check metrics`.

/// Converts OpenMetrics text. In the older format a family has the name of its samples, and there is no `info` type and no unit.
pub(super) fn from_open_metrics(text: &str) -> String {
    let mut plain = String::with_capacity(text.len() + text.len() / 8);
    let mut help = "";
    for line in text.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            push(&mut plain, &[line]);
            continue;
        };
        if let Some(family) = comment.strip_prefix("HELP ") {
            help = family.split_once(' ').map_or("", |(_, text)| text);
        } else if let Some((name, kind)) = comment.strip_prefix("TYPE ").and_then(|family| family.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            push(&mut plain, &["# HELP ", name, suffix, " ", help]);
            push(&mut plain, &["# TYPE ", name, suffix, " ", kind]);
        }
    }
    plain
}

fn push(text: &mut String, parts: &[&str]) {
    parts.iter().chain(&["\n"]).for_each(|part| text.push_str(part));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_the_names_of_their_samples() {
        let open = "# HELP a Counts a.\n# TYPE a counter\na_total{x=\"1\"} 5\n\
                    # HELP b_seconds A time.\n# TYPE b_seconds gauge\n# UNIT b_seconds seconds\nb_seconds 1.5\n\
                    # HELP c What runs.\n# TYPE c info\nc_info{version=\"1\"} 1\n\
                    # HELP d Of others.\n# TYPE d unknown\nd 2\n# EOF\n";
        let plain = "# HELP a_total Counts a.\n# TYPE a_total counter\na_total{x=\"1\"} 5\n\
                     # HELP b_seconds A time.\n# TYPE b_seconds gauge\nb_seconds 1.5\n\
                     # HELP c_info What runs.\n# TYPE c_info gauge\nc_info{version=\"1\"} 1\n\
                     # HELP d Of others.\n# TYPE d untyped\nd 2\n";
        assert_eq!(from_open_metrics(open), plain);
        assert_eq!(from_open_metrics("# EOF\n"), "");
    }
}
