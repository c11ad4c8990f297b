/* notify.c - see notify.h. A datagram needs no library: libsystemd would be one more to install and to
 * bundle. */
#include "runtime/control/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

bool notify_wanted(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    return path != NULL && (path[0] == '/' || path[0] == '@');
}

void notify_send(const char *state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    if (!notify_wanted() || strlen(path) >= sizeof address.sun_path) return;
    strcpy(address.sun_path, path);
    if (path[0] == '@') address.sun_path[0] = '\0'; /* a name without a file */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return;
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    (void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address, length);
    close(fd);
}

uint64_t notify_watchdog_ns(void)
{
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (!notify_wanted() || usec == NULL || (pid != NULL && strtol(pid, NULL, 10) != (long)getpid()))
        return 0;
    return strtoull(usec, NULL, 10) * 1000 / 2;
}
