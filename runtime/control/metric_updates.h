/* metric_updates.h - metrics of updates (runtime/run/updates.h). */
#ifndef BEAMRING_RUNTIME_CONTROL_METRIC_UPDATES_H
#define BEAMRING_RUNTIME_CONTROL_METRIC_UPDATES_H

#include "runtime/control/metric_lines.h"

void metric_updates(struct page *p);
void metric_updates_waiting(struct page *p);
void metric_journal_kept(struct page *p);
void metric_watched_files(struct page *p);

#endif
