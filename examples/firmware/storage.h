/* The stream's snapshots in flash. */
#ifndef STORAGE_H
#define STORAGE_H

#include "edgefold_cmanp.h"

enum edgefold_status storage_save(struct edgefold_cmanp *stream);

/* Takes over the newest snapshot that is whole; EDGEFOLD_NO_SNAPSHOT where there is none. */
enum edgefold_status storage_load(struct edgefold_cmanp *stream);

#endif
