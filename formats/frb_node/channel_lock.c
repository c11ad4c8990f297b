#include "formats/frb_node/channel_lock.h"
#include "formats/common/order.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int channel_lock_take(struct file_lock *lock, const char *destination, const int64_t *channels, size_t count,
                      struct br_error *error)
{
    const char *directory = getenv("XDG_RUNTIME_DIR");
    if (directory == NULL || access(directory, W_OK) != 0) directory = "/tmp";
    snprintf(lock->path, sizeof lock->path, "%.100s/beamring-frb-node-%.120s.lock", directory, destination);
    int64_t *sorted = malloc(count * sizeof *sorted);
    if (sorted == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for %zu channels", count);
    memcpy(sorted, channels, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, order_int64);
    struct br_error why = {0};
    int status = file_lock_take(lock, sorted, count, &why);
    free(sorted);
    if (status == BR_E_INVALID)
        return br_fail(error, status,
                       "another sender on this machine sends some of the channels %" PRId64 " to %" PRId64,
                       lock->first, lock->last);
    return status == BR_OK ? BR_OK : br_fail(error, status, "%s", why.text);
}
