/* graph.c - `beamring graph`: who feeds whom. */
#include "tools/beamring/arguments.h"
#include "tools/beamring/commands.h"
#include "tools/beamring/json.h"

/* Graphviz: stages are boxes, queues are edges with their array. */
static void print_dot(const struct br_graph *graph)
{
    char text[256];
    size_t nedges = br_graph_nedges(graph);
    puts("digraph beamring {\n  rankdir=LR; node [shape=box, fontname=\"sans-serif\"]; edge "
         "[fontname=\"sans-serif\", fontsize=10];");
    for (size_t s = 0; s < graph->nstages; s++) {
        const struct br_stage *stage = &graph->stage[s];
        printf("  \"%s\" [label=\"%s\\n%s", stage->name, stage->name, stage->type->summary);
        if (stage->device >= 0) printf("\\ncuda:%d", stage->device);
        printf("\"%s];\n", s >= graph->nfile ? ", style=rounded" : "");
    }
    for (size_t i = 0; i < nedges; i++) {
        const struct br_edge *edge = br_graph_edge(graph, i);
        for (const struct br_link *link = edge->readers; link != NULL; link = link->next)
            printf("  \"%s\" -> \"%s\" [label=\"%s\\n%s\"%s];\n", edge->producer->name, link->stage->name,
                   edge->name, br_array_format(&edge->stream.array, text, sizeof text),
                   link->policy != BR_POLICY_BLOCK ? ", style=dashed" : "");
    }
    puts("}");
}

static void print_tree(const struct br_stage *stage, int indent)
{
    char text[256];
    for (unsigned i = 0; i < stage->nout; i++) {
        const struct br_edge *edge = &stage->out[i];
        printf("%*s%s  %s\n", indent + 2, "", edge->name,
               br_array_format(&edge->stream.array, text, sizeof text));
        for (const struct br_link *link = edge->readers; link != NULL; link = link->next) {
            printf("%*s%s%s", indent + 4, "", link->policy != BR_POLICY_BLOCK ? "~> " : "-> ",
                   link->stage->name);
            if (link->stage->device >= 0) printf("  [cuda:%d]", link->stage->device);
            puts(link->port > 0 ? "  (drawn above or below)" : "");
            if (link->port == 0) print_tree(link->stage, indent + 4);
        }
    }
}

int cmd_graph(int argc, char **argv)
{
    struct arguments a;
    struct loaded loaded;
    if (read_arguments(argc, argv, "dj", &a) != 0) return 2;
    int status = load_pipeline(&loaded, a.file, a.nset, a.set, BR_LOG_NOTE);
    if (status == 0 && a.dot) print_dot(loaded.graph);
    if (status == 0 && a.json) status = json_print(json_pipeline(loaded.graph));
    for (size_t s = 0; status == 0 && !a.dot && !a.json && s < loaded.graph->nstages; s++) {
        const struct br_stage *stage = &loaded.graph->stage[s];
        if (stage->nin > 0) continue;
        puts(stage->name);
        print_tree(stage, 0);
    }
    unload_pipeline(&loaded);
    return status;
}
