/* plain.h - texts of files and peers on their way to people. */
#ifndef BEAMRING_RUNTIME_BASE_PLAIN_H
#define BEAMRING_RUNTIME_BASE_PLAIN_H

/* Makes a text harmless to terminals, in place: control characters other than a new line or a tab, and bytes
 * that are not UTF-8, become '?'. */
void br_text_plain(char *text);

#endif
