//! Events and the sinks that they are sent to.

use crate::metrics::table::{MetricInfo, MetricKind};

pub(super) const ABOUT: &str = "
[Events](events.md) of this server, and how the sinks of `--events` fare. A server without sinks has no series of those.

```promql
tollgate_event_oldest_seconds > 600
increase(tollgate_event_deliveries_total{result=\"dropped\"}[1h]) > 0
```
";

pub(super) const FAMILIES: &[MetricInfo] = families!({
Counter tollgate_events_total [type]
    "Events by type"
    "`rules.rejected` or `store.level`: something needs attention"
Counter tollgate_events_dropped_total []
    "Events that no sink got, because the data directory could not be written for too long"
    "Any: the disk of the data directory is full or broken"
Counter tollgate_event_deliveries_total [sink result]
    "Events by sink and result: ok; retry: an attempt failed, and the event is sent again; dropped: given up, or removed before it was sent; gone: 1 if the receiver said that it takes no more"
    "`retry`: the receiver fails; `dropped`: events are lost; `gone`: end the subscription, or test it to begin it again"
Gauge tollgate_events_waiting [sink]
    "Lines of the journal that a sink has not read, those that it does not need included"
    "A rise: the receiver fails or is slow"
Gauge tollgate_event_oldest_seconds [sink]
    "How old the event is that a sink sends next; 0 if none waits"
    "Above 10 minutes: see `degraded` for the reason"
});
