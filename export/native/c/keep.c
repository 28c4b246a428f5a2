/* Bundles whose snapshots have the same state and are loaded, too. */
static const char *const resumed[] = {
$resumes    NULL,
};

/* Lists the state's tensors by name, on the sides that are given; rings where they are told. */
static void list_state(struct $stream *stream, uint32_t sides, int is_load,
                       struct edgefold_array state[$n_state])
{
$unused_list
$list
}

static int state_is_finite(const struct edgefold_array state[$n_state])
{
    return $judged;
}

${linkage}enum edgefold_status ${stream}_save(
    struct $stream *stream, edgefold_write *write, void *to,
    const struct edgefold_array *extra, size_t n_extra)
{
    struct edgefold_array state[$n_state];
    struct edgefold_commit at;
    struct snapshot snapshot = {${NAME}_BUNDLE, resumed, 0, 0, state, $n_state, extra, n_extra};
@if rings
    settle(stream);
@end
    at = last_commit(stream);
    snapshot.n_points = at.n_points;
    snapshot.n_recent = at.n_recent;
    list_state(stream, at.sides, 0, state);
    if (!state_is_finite(state)) return EDGEFOLD_NOT_FINITE;
    return snapshot_write(&snapshot, write, to);
}

${linkage}enum edgefold_status ${stream}_load(
    struct $stream *stream, edgefold_read *read, void *from,
    struct edgefold_array *extra, size_t n_extra)
{
    struct edgefold_array state[$n_state];
    struct snapshot snapshot = {${NAME}_BUNDLE, resumed, 0, 0, state, $n_state, extra, n_extra};
    struct edgefold_commit next = {0, 0, 0, 0, 0};
    enum edgefold_status status;
    next.sides = last_commit(stream).sides ^ $all_sides;
    list_state(stream, next.sides, 1, state);
    status = snapshot_read(&snapshot, extra, read, from);
    if (status != EDGEFOLD_OK) return status;
    if (!state_is_finite(state)) return EDGEFOLD_BAD_SNAPSHOT;
@if room
    if (snapshot.n_points > ${NAME}_ROOM) return EDGEFOLD_BAD_SNAPSHOT;
@end
$take_rings
    next.n_points = snapshot.n_points;
    next.n_recent = snapshot.n_recent;
    set_commit(stream, next);
    return EDGEFOLD_OK;
}
