/* Loads every component of this build as Open MPI does, and asks each for its MCA struct.
 *
 * Open MPI skips a component that does not load without a word, so a missing symbol would go
 * unnoticed until somebody wonders why the feature is off. Here RTLD_NOW resolves everything, in a
 * C program that has libmpi loaded as an application has. Prints TAP. */

#define _GNU_SOURCE 1 /* nftw, struct FTW */
#include <dlfcn.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ompi_config.h"
#include "opal/mca/mca.h"
#include <mpi.h>

enum { MOST = 64 };

static char *objects[MOST];
static int object_count;
static int archive_count;

/* Counts mca_*.la, which libtool leaves for each component, and keeps the path of each mca_*.so. */
static int visit(const char *path, const struct stat *status, int type, struct FTW *where)
{
    const char *name = path + where->base;
    const char *dot = strrchr(name, '.');
    (void)status;
    if (type != FTW_F || strncmp(name, "mca_", 4) != 0 || dot == NULL || strstr(path, "/.libs/")) {
        return 0;
    }
    if (strcmp(dot, ".la") == 0) {
        char object[4096];
        archive_count++;
        snprintf(object, sizeof object, "%.*s.libs/%.*s.so", where->base, path, (int)(dot - name),
                 name);
        if (access(object, R_OK) == 0 && object_count < MOST) {
            objects[object_count++] = strdup(object);
        }
    }
    return 0;
}

static int load(int number, const char *path)
{
    char symbol[512];
    const char *base = strrchr(path, '/') + 1;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const mca_base_component_t *component;

    if (handle == NULL) {
        printf("not ok %d - %s loads\n# %s\n", number, base, dlerror());
        return 1;
    }
    snprintf(symbol, sizeof symbol, "%.*s_component", (int)(strlen(base) - 3), base);
    component = dlsym(handle, symbol);
    if (component == NULL) {
        printf("not ok %d - %s has %s\n# %s\n", number, base, symbol, dlerror());
        return 1;
    }
    /* mca_<type>_<name>_component, as Open MPI derives it from the file's name. */
    snprintf(symbol, sizeof symbol, "mca_%s_%s.so", component->mca_type_name,
             component->mca_component_name);
    if (strcmp(symbol, base) != 0) {
        printf("not ok %d - %s calls itself %s\n", number, base, symbol);
        return 1;
    }
    printf("ok %d - %s, version %d.%d.%d\n", number, base, component->mca_component_major_version,
           component->mca_component_minor_version, component->mca_component_release_version);
    return 0;
}

int main(void)
{
    static const char *const roots[] = {"opal", "ompi", "orte_glue"};
    int failed = 0;
    int version, subversion;

    setvbuf(stdout, NULL, _IOLBF, 0);
    MPI_Get_version(&version, &subversion); /* keeps libmpi linked */
    for (size_t i = 0; i < sizeof roots / sizeof roots[0]; i++) {
        char root[4096];
        snprintf(root, sizeof root, "%s/%s", FT_TOP_BUILDDIR, roots[i]);
        if (access(root, R_OK) == 0) {
            nftw(root, visit, 16, FTW_PHYS);
        }
    }
    printf("1..%d\n", object_count + 1);
    if (object_count != archive_count) {
        failed++;
        printf("not ");
    }
    printf("ok 1 - each of %d components built has a shared object\n", archive_count);
    for (int i = 0; i < object_count; i++) {
        failed += load(i + 2, objects[i]);
        free(objects[i]);
    }
    return failed != 0;
}
