/* presets.c - the descriptions of config/packets/ by name. See description.h. */
#include "formats/packets/description.h"
#include "runtime/config/config.h"

#include <stdio.h>
#include <string.h>

const char *const packet_presets[] = {"chord-crs", "chime-ice",   "casm-snap", "lwa-snap2",
                                      "ata-snap",  "dsa110-snap", "spead",     NULL};

int packet_no_preset(const char *name, int status, struct br_error *error)
{
    if (error == NULL || strstr(error->text, "there is no file 'packets/") == NULL) return status;
    char known[200] = "";
    const char *similar = br_suggest(name, packet_presets), *looked = strstr(error->text, "looked in ");
    if (similar != NULL && strcmp(similar, name) == 0) similar = NULL; /* its file is missing */
    for (size_t i = 0; packet_presets[i] != NULL; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i > 0 ? ", " : "",
                 packet_presets[i]);
    char text[BR_ERROR_LENGTH];
    snprintf(
        text, sizeof text,
        "there is no packet description '%.60s'%s%s%s; expected %s, or a path such as ./%.60s.yaml (%.300s)",
        name, similar != NULL ? "; did you mean '" : "", similar != NULL ? similar : "",
        similar != NULL ? "'?" : "", known, name, looked != NULL ? looked : "not found");
    *error = (struct br_error){0};
    return br_fail(error, BR_E_INVALID, "%s", text);
}
