static struct <<library>> stream; /* static: it is too large for many a stack */

/* Takes row n; a made-up wave stands in for the numbers of a sensor. Its prediction of the row is
 * in stream.prediction_<<first>>, if the result is EDGEFOLD_OK. */
static enum edgefold_status turn(unsigned n)
{
@if sensor
    const double hour = n % 24;
    const double value = 20.0 + (hour < 12 ? hour : 24 - hour);
    const double row[4] = {value, 1.0, 24.0, hour}; /* value, measured, season, place in it */
    return <<library>>_step(&stream, row);
@end
@if !sensor
@if n_x
    double x[<<n_x>>];
    for (unsigned i = 0; i < <<n_x>>; i++) x[i] = (n + i) % 8 / 8.0;
@end
@if filter
    return <<library>>_step(&stream, <<x>>);
@end
@if !filter
@if n_y
    double y[<<n_y>>];
    for (unsigned i = 0; i < <<n_y>>; i++) y[i] = (n + i) % 2;
@end
    enum edgefold_status status = <<library>>_query(&stream, 1, <<x>>);
    if (status == EDGEFOLD_OK) status = <<library>>_update(&stream, <<x>>, <<y>>);
    return status;
@end
@end
}
