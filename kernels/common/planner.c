#include "kernels/common/planner.h"

#include <pthread.h>

static pthread_mutex_t planner = PTHREAD_MUTEX_INITIALIZER;

void br_planner_lock(void)
{
    pthread_mutex_lock(&planner);
}

void br_planner_unlock(void)
{
    pthread_mutex_unlock(&planner);
}
