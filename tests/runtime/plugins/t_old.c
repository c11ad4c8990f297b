/* t_old - for tests: what a plugin for another version of the interface looks like: the rest cannot be
 * trusted. */
#include <stdint.h>

extern const uint32_t beamring_stage[2];
__attribute__((visibility("default"))) const uint32_t beamring_stage[2] = {7, 1};
