-- SPDX-License-Identifier: Apache-2.0
\echo Use "CREATE EXTENSION <<name>>" to load this file. \quit

-- Learning

@if scalars
CREATE FUNCTION <<name>>_learn(internal, <<scalar_types>>)
RETURNS internal AS 'MODULE_PATHNAME', '<<library>>_pg_learn'
LANGUAGE C IMMUTABLE PARALLEL SAFE COST 100;

@end
CREATE FUNCTION <<name>>_learn(internal, <<array_types>>)
RETURNS internal AS 'MODULE_PATHNAME', '<<library>>_pg_learn_arrays'
LANGUAGE C IMMUTABLE PARALLEL SAFE COST 100;

CREATE FUNCTION <<name>>_take(internal, bytea)
RETURNS internal AS 'MODULE_PATHNAME', '<<library>>_pg_take'
LANGUAGE C IMMUTABLE PARALLEL SAFE COST 10000;

CREATE FUNCTION <<name>>_combine(internal, internal)
RETURNS internal AS 'MODULE_PATHNAME', '<<library>>_pg_combine'
LANGUAGE C IMMUTABLE PARALLEL SAFE COST 1000;

CREATE FUNCTION <<name>>_serialize(internal)
RETURNS bytea AS 'MODULE_PATHNAME', '<<library>>_pg_serialize'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 1000;

CREATE FUNCTION <<name>>_deserialize(bytea, internal)
RETURNS internal AS 'MODULE_PATHNAME', '<<library>>_pg_deserialize'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 1000;

CREATE FUNCTION <<name>>_state(internal)
RETURNS bytea AS 'MODULE_PATHNAME', '<<library>>_pg_state'
LANGUAGE C IMMUTABLE PARALLEL SAFE COST 10000;

@if scalars
CREATE AGGREGATE <<name>>(<<scalars_named>>) (
    SFUNC = <<name>>_learn,
    STYPE = internal,
    SSPACE = <<state_bytes>>,
    FINALFUNC = <<name>>_state,
    COMBINEFUNC = <<name>>_combine,
    SERIALFUNC = <<name>>_serialize,
    DESERIALFUNC = <<name>>_deserialize,
    PARALLEL = SAFE
);
COMMENT ON AGGREGATE <<name>>(<<scalar_types>>) IS
'the state that the model has after these rows, as a snapshot';

@end
CREATE AGGREGATE <<name>>(<<arrays_named>>) (
    SFUNC = <<name>>_learn,
    STYPE = internal,
    SSPACE = <<state_bytes>>,
    FINALFUNC = <<name>>_state,
    COMBINEFUNC = <<name>>_combine,
    SERIALFUNC = <<name>>_serialize,
    DESERIALFUNC = <<name>>_deserialize,
    PARALLEL = SAFE
);
COMMENT ON AGGREGATE <<name>>(<<array_types>>) IS
'the state that the model has after these rows, as a snapshot';

-- States

CREATE AGGREGATE <<name>>_merge_all(state bytea) (
    SFUNC = <<name>>_take,
    STYPE = internal,
    SSPACE = <<state_bytes>>,
    FINALFUNC = <<name>>_state,
    COMBINEFUNC = <<name>>_combine,
    SERIALFUNC = <<name>>_serialize,
    DESERIALFUNC = <<name>>_deserialize,
    PARALLEL = SAFE
);
COMMENT ON AGGREGATE <<name>>_merge_all(bytea) IS
'one state that knows the points of all; they must have none in common';

CREATE FUNCTION <<name>>_merge(state bytea, other bytea)
RETURNS bytea AS 'MODULE_PATHNAME', '<<library>>_pg_merge'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10000;
COMMENT ON FUNCTION <<name>>_merge(bytea, bytea) IS
'one state that knows the points of both; they must have none in common';

CREATE FUNCTION <<name>>_points(state bytea)
RETURNS bigint AS 'MODULE_PATHNAME', '<<library>>_pg_points'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10000;
COMMENT ON FUNCTION <<name>>_points(bytea) IS 'how many points a state has learned';

-- Predictions

@if asks_scalars
CREATE FUNCTION <<name>>_query(<<query_scalars>>)
AS 'MODULE_PATHNAME', '<<library>>_pg_query'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 1000;
COMMENT ON FUNCTION <<name>>_query(<<query_scalar_types>>) IS
'the prediction of a state at an input';

@end
@if x
CREATE FUNCTION <<name>>_query(<<query_array>>)
AS 'MODULE_PATHNAME', '<<library>>_pg_query_array'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 1000;
COMMENT ON FUNCTION <<name>>_query(bytea, double precision[]) IS
'the prediction of a state at an input';
@end
