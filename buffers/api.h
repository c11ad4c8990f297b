/* api.h - what a plugin may call: the functions that are marked BR_API, and no others, leave libbeamring. */
#ifndef BEAMRING_BUFFERS_API_H
#define BEAMRING_BUFFERS_API_H

#define BR_API __attribute__((visibility("default")))

#endif
