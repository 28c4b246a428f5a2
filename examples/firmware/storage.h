/* The stream's snapshots in flash. */
#ifndef STORAGE_H
#define STORAGE_H

#include "edgefold_cmanp.h"

/* Takes over the newest snapshot that is whole; EDGEFOLD_NO_SNAPSHOT where there is none. Call it
   once before the first save: it finds out which slot holds the snapshot that must stay. */
enum edgefold_status storage_load(struct edgefold_cmanp *stream);

/* Writes a snapshot, reads it back, and makes it the newest. Anything but EDGEFOLD_OK leaves the
   one before. */
enum edgefold_status storage_save(struct edgefold_cmanp *stream);

#endif
