/* settings.c - see settings.h. */
#include "runtime/graph/settings.h"

#include "runtime/base/address.h"

static const struct br_param params[] = {
    BR_PARAM("listen", BR_P_STRING, struct br_control_settings, listen, NULL, .required = true),
    BR_PARAM("token_file", BR_P_PATH, struct br_control_settings, token_file, NULL),
    BR_PARAM("log_lines", BR_P_INT, struct br_control_settings, log_lines, NULL, .def = "1000", .min = 1,
             .max = 100000),
    BR_PARAM("late_s", BR_P_REAL, struct br_control_settings, late_s, NULL, .def = "5", .min = 0.1,
             .max = 1e6),
    {0},
};

void br_control_read(struct br_config *config, const struct br_node *node,
                     struct br_control_settings *settings)
{
    struct control_address address;
    struct br_error error = {0};
    *settings = (struct br_control_settings){0};
    if (node == NULL) return;
    if (node->kind != BR_NODE_MAP) {
        br_config_error(config, node, "control: expected a map such as {listen: 127.0.0.1:8081}");
        return;
    }
    if (br_config_fill(config, node, params, NULL, settings) > 0) return;
    if (control_address_read(settings->listen, &address, &error) != BR_OK)
        br_config_error(config, br_node_get(node, "listen"), "control: listen: %s", error.text);
    else if (!address.loopback && settings->token_file == NULL)
        br_config_error(config, br_node_get(node, "listen"),
                        "control: listen: '%s' can be reached from other machines; expected a `token_file:` "
                        "with it, or an address of 127.0.0.1",
                        settings->listen);
}
