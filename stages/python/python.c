/* python.c - a class in Python as a stage.
 *
 * The plugin only finds an interpreter: the one that runs this process, or the libpython of the user's
 * Python, which it loads. All else is in the package `beamring` (python/src/stage.c), which it asks for the
 * descriptor that holds for the script and the class. So neither the program nor this plugin depends on
 * Python. */
#include "stages/python/python.h"
#include "runtime/stage.h"
#include "stages/python_description.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The functions of Python's stable ABI that are needed before the package is there. */
struct python {
    int (*is_initialized)(void);
    void (*initialize)(int signals);
    int (*ensure)(void);
    void (*release)(int state);
    void *(*save_thread)(void);
    void *(*sys_object)(const char *name);
    void *(*text)(const char *text);
    int (*insert)(void *list, ssize_t at, void *item);
    void (*forget)(void *object);
    void *(*capsule)(const char *name, int no_block);
    void (*fetch)(void **type, void **value, void **trace);
    void *(*str)(void *object);
    const char *(*utf8)(void *text, ssize_t *length);
};

static bool look_up(struct python *p, void *library)
{
    const struct {
        void *to;
        const char *name;
    } all[] = {{&p->is_initialized, "Py_IsInitialized"},
               {&p->initialize, "Py_InitializeEx"},
               {&p->ensure, "PyGILState_Ensure"},
               {&p->release, "PyGILState_Release"},
               {&p->save_thread, "PyEval_SaveThread"},
               {&p->sys_object, "PySys_GetObject"},
               {&p->text, "PyUnicode_FromString"},
               {&p->insert, "PyList_Insert"},
               {&p->forget, "Py_DecRef"},
               {&p->capsule, "PyCapsule_Import"},
               {&p->fetch, "PyErr_Fetch"},
               {&p->str, "PyObject_Str"},
               {&p->utf8, "PyUnicode_AsUTF8AndSize"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        void *found = dlsym(library, all[i].name);
        if (found == NULL) return false;
        memcpy(all[i].to, &found, sizeof found);
    }
    return true;
}

/* Printed by the user's Python: its library, where its own modules are, and where it looks for others. */
static const char question[] =
    "import os, sys, sysconfig as c; v = c.get_config_var\n"
    "names = [n for n in (v('INSTSONAME'), v('LDLIBRARY')) if n and '.so' in n]\n"
    "where = [v('LIBDIR') or '', os.path.join(v('LIBDIR') or '', v('MULTIARCH') or ''), sys.base_prefix + "
    "'/lib']\n"
    "found = [p for n in names + ['libpython%d.%d.so.1.0' % sys.version_info[:2]] for d in where\n"
    "         for p in [os.path.join(d, n)] if os.path.exists(p)]\n"
    "print(found[0] if found else '')\n"
    "print(sys.base_prefix)\n"
    "print('\\n'.join(p for p in sys.path if p))\n";

enum { MOST_LINES = 64 };

struct answer {
    char *text;
    char *line[MOST_LINES]; /* library, prefix, then directories */
    size_t lines;
};

static void ask(const char *program, struct answer *a)
{
    char command[PATH_MAX + sizeof question + 64];
    size_t length = 0;
    *a = (struct answer){.text = calloc(1, 1 << 16)};
    snprintf(command, sizeof command, "'%s' -c \"%s\" 2>/dev/null", program, question);
    FILE *pipe = strchr(program, '\'') == NULL && a->text != NULL ? popen(command, "r") : NULL;
    if (pipe == NULL) return;
    length = fread(a->text, 1, (1 << 16) - 1, pipe);
    pclose(pipe);
    a->text[length] = '\0';
    for (char *c = a->text, *end; a->lines < MOST_LINES && (end = strchr(c, '\n')) != NULL; c = end + 1) {
        *end = '\0';
        a->line[a->lines++] = c;
    }
}

/* The directory of the package that was installed with this plugin. */
static void package_directory(char path[PATH_MAX])
{
    Dl_info info;
    path[0] = '\0';
    if (dladdr(question, &info) == 0 || info.dli_fname == NULL || realpath(info.dli_fname, path) == NULL)
        return;
    char *slash = strrchr(path, '/');
    if (slash == NULL || (size_t)(slash - path) + 16 > PATH_MAX) return;
    strcpy(slash, "/../python");
}

static void add_path(const struct python *p, ssize_t at, const char *directory)
{
    void *text = p->text(directory);
    if (text != NULL) p->insert(p->sys_object("path"), at, text);
    if (text != NULL) p->forget(text);
}

/* Loads libpython and starts it. Errors: a message that says what to do. */
static int start(struct python *p, struct br_stage *stage)
{
    const char *program = getenv("BEAMRING_PYTHON"), *home = getenv("PYTHONHOME");
    struct answer a;
    char package[PATH_MAX];
    if (program == NULL || program[0] == '\0') program = "python3";
    ask(program, &a);
    void *library = a.lines >= 2 && a.line[0][0] != '\0' ? dlopen(a.line[0], RTLD_NOW | RTLD_GLOBAL) : NULL;
    int status = BR_OK;
    if (a.lines < 2)
        status = br_stage_fail(stage, BR_E_INVALID,
                               "'%s' is not a Python that can be run; set BEAMRING_PYTHON "
                               "to the path of a Python of version 3.10 or later",
                               program);
    else if (library == NULL || !look_up(p, library))
        status =
            br_stage_fail(stage, BR_E_INVALID,
                          "'%s' has no shared library libpython%s%s; install it (Debian: libpython3-dev), or "
                          "set BEAMRING_PYTHON to a Python that has one",
                          program, a.line[0][0] != '\0' ? " that can be loaded: " : "", a.line[0]);
    if (status == BR_OK) {
        char *before = home != NULL ? strdup(home) : NULL;
        setenv("PYTHONHOME", a.line[1], 1); /* the library cannot know for whose modules it was asked */
        p->initialize(0);
        if (before != NULL)
            setenv("PYTHONHOME", before, 1);
        else
            unsetenv("PYTHONHOME");
        free(before);
        package_directory(package);
        for (size_t i = 2; i < a.lines; i++) add_path(p, (ssize_t)i - 2, a.line[i]);
        if (package[0] != '\0') add_path(p, (ssize_t)a.lines, package);
        p->save_thread();
    }
    free(a.text);
    return status;
}

static int import_package(const struct python *p, struct br_stage *stage, python_specialize **specialize)
{
    int state = p->ensure(), status = BR_OK;
    void *found = p->capsule(PYTHON_CAPSULE, 0);
    if (found == NULL) {
        void *type = NULL, *value = NULL, *trace = NULL;
        p->fetch(&type, &value, &trace);
        void *text = value != NULL ? p->str(value) : NULL;
        const char *why = text != NULL ? p->utf8(text, NULL) : NULL;
        status =
            br_stage_fail(stage, BR_E_INVALID,
                          "the Python package `beamring` cannot be imported: %s; install it (pip install .) "
                          "for the Python that BEAMRING_PYTHON names",
                          why != NULL ? why : "it gave no reason");
    }
    memcpy(specialize, &found, sizeof found);
    p->release(state);
    return status;
}

static int specialize(struct br_stage *stage, const void *self, const struct br_stage_type **type)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static struct python python; /* of the process, like the interpreter */
    static bool found;
    python_specialize *of_package = NULL;
    pthread_mutex_lock(&mutex);
    if (!found) found = look_up(&python, RTLD_DEFAULT) && python.is_initialized();
    int status = found ? BR_OK : start(&python, stage);
    found = status == BR_OK;
    pthread_mutex_unlock(&mutex);
    if (status == BR_OK) status = import_package(&python, stage, &of_package);
    return status == BR_OK ? of_package(stage, self, type) : status;
}

/* Never called: a stage without a class does not get as far. */
static int configure(struct br_stage *stage, void *self)
{
    (void)self;
    return br_stage_fail(stage, BR_E_INTERNAL, "it has no class");
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    (void)self, (void)io;
    return br_stage_fail(stage, BR_E_INTERNAL, "it has no class");
}

static const struct br_param params[] = {PYTHON_PARAMS, {0}};
static const struct br_port inputs[] = {{"in", "any stream; the class says how many inputs it has"}, {0}};
static const struct br_port outputs[] = {{"out", "what the class describes; it says how many"}, {0}};

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "python",
    .summary = "a class in Python: frames as NumPy arrays, without a copy",
    .description = description,
    .params = params,
    .inputs = inputs,
    .outputs = outputs,
    .size = sizeof(struct python_params),
    .configure = configure,
    .process = process,
    .specialize = specialize,
};
