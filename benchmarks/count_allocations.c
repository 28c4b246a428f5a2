/* Counts the live bytes of the heap, for benchmarks/memory/budget_child.py: preload it, then call
   counted_live() and counted_peak(); counted_reset() lets the peak start again. glibc only. */

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static atomic_long live, peak;

static void *added(void *block) {
    if (block) {
        long size = (long)malloc_usable_size(block);
        long now = atomic_fetch_add(&live, size) + size;
        if (now > peak)
            peak = now;
    }
    return block;
}

static void removed(void *block) {
    if (block)
        atomic_fetch_sub(&live, (long)malloc_usable_size(block));
}

void *malloc(size_t size) { return added(__libc_malloc(size)); }

void *calloc(size_t count, size_t size) { return added(__libc_calloc(count, size)); }

void *realloc(void *block, size_t size) {
    removed(block);
    void *moved = __libc_realloc(block, size);
    added(moved || !size ? moved : block);
    return moved;
}

void free(void *block) {
    removed(block);
    __libc_free(block);
}

void *memalign(size_t alignment, size_t size) { return added(__libc_memalign(alignment, size)); }

void *aligned_alloc(size_t alignment, size_t size) {
    return added(__libc_memalign(alignment, size));
}

int posix_memalign(void **place, size_t alignment, size_t size) {
    void *block = added(__libc_memalign(alignment, size));
    if (!block)
        return ENOMEM;
    *place = block;
    return 0;
}

long counted_live(void) { return live; }

long counted_peak(void) { return peak; }

void counted_reset(void) { peak = live; }
