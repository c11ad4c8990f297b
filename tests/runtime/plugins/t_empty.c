/* t_empty - for tests: a shared object that is not a plugin. */
extern const int t_empty_is_no_plugin;
__attribute__((visibility("default"))) const int t_empty_is_no_plugin = 1;
