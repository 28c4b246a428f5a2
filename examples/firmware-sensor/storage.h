/* The sensor's snapshots in flash. */
#ifndef STORAGE_H
#define STORAGE_H

#include "edgefold_sensors.h"

/* Goes on from the newest snapshot that is whole; EDGEFOLD_NO_SNAPSHOT if there is none. The sensor
   must have been started. Call it once before the first save. */
enum edgefold_status storage_load(struct edgefold_sensors_sensor *sensor);

/* Writes a snapshot over the older one. Anything but EDGEFOLD_OK leaves the newer one. */
enum edgefold_status storage_save(struct edgefold_sensors_sensor *sensor);

#endif
