/* Snapshots of N_SENSORS sensors in flash. place: which of them it is, from 0 to
   N_SENSORS - 1, the same at every start; a larger one is EDGEFOLD_TOO_MANY. */
#ifndef STORAGE_H
#define STORAGE_H

#include <stddef.h>

#include "edgefold_sensors.h"

/* Goes on from the sensor's newest snapshot that is whole; EDGEFOLD_NO_SNAPSHOT if there is none.
   The sensor must have been started. Call it once for each sensor before its first save. */
enum edgefold_status storage_load(size_t place, struct edgefold_sensors_sensor *sensor);

/* Writes a snapshot over the sensor's older one. Anything but EDGEFOLD_OK leaves the newer one. */
enum edgefold_status storage_save(size_t place, struct edgefold_sensors_sensor *sensor);

#endif
