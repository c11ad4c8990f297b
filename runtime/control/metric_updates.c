/* metric_updates.c - see metric_updates.h. */
#include "runtime/control/metric_updates.h"

#include "runtime/run/update_watch.h"
#include "runtime/run/updates.h"

void metric_updates(struct page *p)
{
    const struct update_facts *u = &p->facts->updates;
    for (unsigned i = 0; u->known && i < BR_UPDATE_STATES; i++)
        line1(p, "state", br_update_state_name[i], (double)u->total[i]);
}

void metric_updates_waiting(struct page *p)
{
    if (p->facts->updates.known) line0(p, (double)p->facts->updates.waiting);
}

void metric_journal_kept(struct page *p)
{
    const struct update_facts *u = &p->facts->updates;
    if (u->known && u->journal != BR_JOURNAL_NONE) line0(p, u->journal == BR_JOURNAL_KEPT);
}

void metric_watched_files(struct page *p)
{
    const struct update_facts *u = &p->facts->updates;
    for (unsigned i = 0; u->known && i < 4; i++)
        line1(p, "state", br_watch_state_name[i], (double)u->watched[i]);
}
