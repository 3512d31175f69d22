//! In: metrics in the text format of Prometheus. Out: their sums.
//! Pure.

/// The sum of a metric over all its labels; what is not there counts nothing.
pub fn total(text: &str, metric: &str) -> f64 {
    text.lines().filter_map(|line| value(line, metric)).sum()
}

fn value(line: &str, metric: &str) -> Option<f64> {
    let rest = line.strip_prefix(metric)?;
    let value = match rest.strip_prefix('{') {
        // A label's value may hold anything but a quote that is not escaped; the last brace ends the labels.
        Some(labelled) => labelled.rsplit_once("} ")?.1,
        None => rest.strip_prefix(' ')?,
    };
    value.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "small counts are exact")]
    use super::*;

    const TEXT: &str = "\
# HELP requests_total Requests
# TYPE requests_total counter
requests_total{code=\"200\",host=\"a} b\"} 3
requests_total{code=\"409\",host=\"a\"} 1e+03 1700000000
requests_total_created 7
up 1
# EOF
";

    #[test]
    fn a_metric_is_summed_over_its_labels() {
        assert_eq!(total(TEXT, "requests_total"), 1003.0);
        assert_eq!(total(TEXT, "up"), 1.0);
    }

    #[test]
    fn another_metric_that_begins_alike_is_not_counted() {
        assert_eq!(total(TEXT, "requests"), 0.0);
        assert_eq!(total(TEXT, "requests_total_created"), 7.0);
    }
}
