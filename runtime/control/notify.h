/* notify.h - what systemd wants to be told: sd_notify's protocol, one datagram each. */
#ifndef BEAMRING_RUNTIME_CONTROL_NOTIFY_H
#define BEAMRING_RUNTIME_CONTROL_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

/* True when a service manager listens: $NOTIFY_SOCKET. */
bool notify_wanted(void);

/* Sends "READY=1", "STATUS=...", several separated by newlines. Never waits; a manager that is not there is
 * no failure. */
void notify_send(const char *state);

/* How often WATCHDOG=1 is expected, in ns: half of $WATCHDOG_USEC where that is meant for this process; 0:
 * not. */
uint64_t notify_watchdog_ns(void);

#endif
