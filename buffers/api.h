/* api.h - BR_API marks the functions that a plugin may call. libbeamring exports no others. */
#ifndef BEAMRING_BUFFERS_API_H
#define BEAMRING_BUFFERS_API_H

#define BR_API __attribute__((visibility("default")))

#endif
