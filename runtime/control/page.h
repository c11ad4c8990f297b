/* page.h - the live page: runtime/control/page.html, put into the program when it is built. */
#ifndef BEAMRING_RUNTIME_CONTROL_PAGE_H
#define BEAMRING_RUNTIME_CONTROL_PAGE_H

#include <stddef.h>

extern const unsigned char control_page[];
extern const size_t control_page_bytes;

#endif
