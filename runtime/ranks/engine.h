/* engine.h - the thread that speaks MPI: all of its calls are made there, while stages work. */
#ifndef BEAMRING_RUNTIME_RANKS_ENGINE_H
#define BEAMRING_RUNTIME_RANKS_ENGINE_H

#include "buffers/error.h"
#include "runtime/ranks.h"

struct engine;

struct engine_self {
    unsigned rank, ranks, local;
};

/* Loads the plugin and starts MPI. `happened` is called when messages are done, or the engine has failed
 * (with the reason); `expect` when a post has arrived, and returns the message that receives it (NULL: no
 * memory). Errors: BR_E_INVALID: no MPI here, and what to install; BR_E_IO. */
int engine_create(struct engine **engine, struct engine_self *self,
                  void (*happened)(void *arg, const char *failure),
                  struct br_message *(*expect)(void *arg, unsigned from, unsigned channel, size_t bytes),
                  void *arg, struct br_error *error);

/* Sends rank 0's data to all ranks, at the start. */
int engine_share(struct engine *engine, void *data, size_t bytes, struct br_error *error);

void engine_submit(struct engine *engine, struct br_message *message);

/* From its return on MPI touches no memory of messages. False: MPI does not return from a call, and may touch
 * it as long as the process lives. */
bool engine_halt(struct engine *engine);

/* Whether that was so. NULL is allowed. */
bool engine_hangs(struct engine *engine);

/* Ends MPI: in order, with all other ranks, or (`clean` false) not at all. False: it hangs, and is left as it
 * is. NULL is allowed. */
bool engine_destroy(struct engine *engine, bool clean);

#endif
