/* Sizes of one bundle's program. Written by Edgefold. */
#ifndef EDGEFOLD_PROGRAM_SIZES_H
#define EDGEFOLD_PROGRAM_SIZES_H

#define PROGRAM_INPUTS $INPUTS  /* columns of x */
#define PROGRAM_OUTPUTS $OUTPUTS /* columns of y in a row; a model that filters has none */
#define PROGRAM_ERRORS $ERRORS  /* outputs that a prediction is compared with */
#define PROGRAM_TOLD_BYTES $TOLD_BYTES /* of what is written of a prediction, at most */

#endif
