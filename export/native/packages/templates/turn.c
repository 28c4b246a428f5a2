@if sensor
static struct <<library>>_sensor stream; /* static: it is too large for many a stack */
static struct <<library>>_row row;

/* Takes row n of a sensor that sends one each hour; a made-up wave stands in for its values, of which
 * row 100 is wrong. What was forecast of it, and whether it is an alarm, is in `row`, if the result
 * is 0. */
static int turn(unsigned n)
{
    const unsigned hour = n % 24;
    const double celsius = n == 100 ? 60.0 : 20.0 + (hour < 12 ? hour : 24 - hour);
    return <<library>>_push(&stream, 3600.0 * n, celsius, 0, &row);
}
@end
@if !sensor
static struct <<library>> stream; /* static: it is too large for many a stack */

/* Takes row n; a made-up wave stands in for the numbers of a sensor. Its prediction of the row is
 * in stream.prediction_<<first>>, if the result is EDGEFOLD_OK. */
static int turn(unsigned n)
{
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
}
@end
