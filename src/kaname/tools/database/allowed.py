"""Allow-list of the functions that only calculate. Other functions are refused: some of them read files or sleep."""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ANY_ENGINE = words(
    """
    abs ceil ceiling floor round trunc sign sqrt cbrt power pow exp ln log log2 log10 mod greatest least degrees
    radians sin cos tan asin acos atan atan2 sinh cosh tanh pi random lower upper length char_length
    character_length octet_length bit_length trim ltrim rtrim btrim lpad rpad left right substr substring position
    instr strpos replace reverse concat concat_ws initcap ascii chr char unicode hex unhex quote repeat translate
    overlay split_part starts_with ends_with contains format printf soundex md5 sha256 encode decode to_hex
    coalesce ifnull nullif iif if nvl typeof count sum avg min max total stddev stddev_pop stddev_samp variance
    var_pop var_samp median mode corr covar_pop covar_samp regr_slope regr_intercept regr_r2 string_agg
    group_concat array_agg listagg bool_and bool_or every any_value first last percentile_cont percentile_disc
    approx_count_distinct bit_and bit_or bit_xor row_number rank dense_rank percent_rank cume_dist ntile lag lead
    first_value last_value nth_value date time datetime timestamp julianday unixepoch strftime strptime timediff
    date_trunc date_part date_diff datediff date_add date_sub age now current_date current_time current_timestamp
    localtime localtimestamp extract make_date make_time make_timestamp make_interval justify_days justify_hours
    justify_interval to_char to_date to_timestamp to_number epoch year month day hour minute second quarter week
    weekday dayofweek dayofyear dayname monthname last_day isodow json json_array json_object json_extract
    json_type json_valid json_array_length json_quote json_group_array json_group_object json_patch json_remove
    json_set json_insert json_replace json_extract_string json_extract_path json_extract_path_text json_keys
    json_each json_tree to_json to_jsonb row_to_json json_build_object json_build_array json_agg
    jsonb_agg json_object_agg jsonb_object_agg jsonb_build_object jsonb_build_array json_typeof jsonb_typeof
    json_array_elements jsonb_array_elements json_array_elements_text jsonb_array_elements_text jsonb_array_length
    jsonb_each jsonb_each_text json_each_text jsonb_object_keys json_object_keys jsonb_extract_path
    jsonb_extract_path_text jsonb_path_query jsonb_path_exists jsonb_set jsonb_strip_nulls json_strip_nulls
    jsonb_pretty array array_length array_position array_append array_prepend array_cat array_remove
    array_to_string string_to_array cardinality unnest generate_series generate_subscripts regexp_replace
    regexp_match regexp_matches regexp_split_to_array regexp_split_to_table regexp_count regexp_like regexp_substr
    regexp_instr regexp_extract regexp_extract_all regexp_full_match grouping width_bucket num_nulls num_nonnulls
    all some any
    acosh asinh atanh cot regr_avgx regr_avgy regr_count regr_sxx regr_sxy regr_syy gen_random_uuid get_bit sha1 uuid exists
    """
)
_BY_ENGINE = {
    "sqlite": words(
        """
    likelihood likely unlikely randomblob subtype substring_index jsonb jsonb_extract glob like zeroblob sqlite_version
    """
    ),
    "postgres": words(
        """
    similar_to_escape like_escape is_normalized pg_typeof timezone row version jsonb_contains jsonb_exists like overlaps
    jsonb_path_query_array quote_literal quote_ident quote_nullable
    factorial gcd lcm scale min_scale trim_scale div normalize string_to_table to_ascii convert_from sha224 sha384
    sha512 date_bin clock_timestamp statement_timestamp timeofday isfinite make_timestamptz lower_inc upper_inc
    isempty range_merge daterange int4range int8range numrange tsrange tstzrange multirange array_dims array_fill
    array_lower array_ndims array_positions array_replace array_upper trim_array tsvector_to_array to_tsvector
    to_tsquery plainto_tsquery phraseto_tsquery websearch_to_tsquery ts_rank ts_headline ts_rank_cd percent_rank
    regexp_split_to_table unaccent similarity json_populate_record jsonb_array_elements jsonb_to_recordset
    json_to_recordset xmlagg point box circle line lseg path polygon area center diameter height npoints radius
    width host masklen family inet_same_family network
    jsonb_path_query_first jsonb_path_match jsonb_insert jsonb_object json_object jsonb_set_lax json_to_record
    jsonb_to_record json_populate_recordset jsonb_populate_recordset jsonb_populate_record array_to_json
    transaction_timestamp enum_range enum_first enum_last range_agg range_intersect_agg upper_inf lower_inf convert_to
    get_byte set_byte set_bit bit_count sind cosd tand cotd asind acosd atand atan2d unistr parse_ident pg_size_pretty
    setweight ts_delete ts_filter numnode hashtext
    """
    ),
    "duckdb": words(
        """
    list list_value list_aggregate list_aggr list_sort list_distinct list_contains list_has list_filter
    list_transform list_reduce list_sum list_avg list_min list_max list_count list_concat list_extract
    list_element list_slice list_zip list_unique list_reverse_sort list_position list_has_any list_has_all
    list_append list_prepend list_any_value list_cosine_similarity array_sum array_contains array_slice
    array_extract array_distinct array_sort array_agg array_filter array_transform struct_pack struct_extract
    struct_insert row map map_keys map_values map_entries map_extract map_from_entries element_at cardinality len
    flatten range arg_max arg_min max_by min_by argmax argmin histogram quantile quantile_cont quantile_disc mad
    skewness kurtosis entropy product fsum kahan_sum sumkahan favg approx_quantile approx_top_k reservoir_quantile
    bar hamming mismatches
    strlen string_split str_split string_split_regex str_split_regex regexp_split_to_array
    regexp_escape strip_accents prefix suffix array_to_string format_bytes formatreadablesize hash md5_number ord
    stem nfc_normalize printf parse_path lcase ucase time_bucket epoch_ms epoch_us epoch_ns era datepart datesub
    datetrunc to_days to_hours to_minutes to_months to_seconds to_weeks to_years to_milliseconds to_microseconds
    yearweek weekofyear century decade millennium timezone today even gamma lgamma lngamma isnan isinf isfinite
    nextafter set_bit get_bit bit_count xor try_cast typeof constant_or_null error alias countif count_if
    count_star geomean geometric_mean bitstring_agg any_value first last
    union_value union_extract union_tag isodow weekday nanosecond
    microsecond millisecond unbin bin hex base64 from_base64 to_base64 url_encode url_decode
    columns grouping_id weighted_avg equi_width_bins version
    apply array_concat array_has array_has_all array_has_any array_intersect
    array_reverse array_reverse_sort current_localtimestamp dayofmonth filter from_hex from_json get_current_time
    list_cosine_distance list_distance reduce split to_binary
    levenshtein damerau_levenshtein jaccard jaro_similarity jaro_winkler_similarity mean sem wavg arbitrary list_reverse
    list_intersect list_select list_where list_resize list_first list_last list_median list_mode list_product
    list_string_agg list_stddev_pop list_stddev_samp list_var_pop list_var_samp array_unique array_push_back
    array_push_front array_pop_back array_pop_front array_value array_distance array_cosine_similarity
    array_cosine_distance array_inner_product array_dot_product array_cross_product struct_keys struct_values
    struct_update struct_concat map_contains map_contains_entry map_contains_value map_concat json_value json_exists
    json_contains json_structure json_transform json_pretty json_merge_patch array_to_json try_strptime make_timestamptz
    transaction_timestamp get_current_timestamp isoyear julian days_in_month to_quarters to_decades to_centuries
    round_even enum_range enum_code pg_typeof parse_filename parse_dirname left_grapheme right_grapheme
    substring_grapheme length_grapheme uuidv7 histogram_exact
    list_apply construct_array like_escape not_like_escape ilike_escape not_ilike_escape
    greatest_common_divisor gcd lcm factorial trunc fdiv fmod add subtract multiply divide
    """
    )
    - {"error"},
}

FUNCTIONS = {dialect: _ANY_ENGINE | own for dialect, own in _BY_ENGINE.items()}
# Words that are no names without quotes, in all three or in some
RESERVED = words(
    """
    all and as asc between by case check column create cross default desc distinct else end except exists from full group having
    in index inner insert into intersect is join left limit natural not null offset on or order outer primary references right
    select set table then to transaction union unique update user using values when where window with
    """
)
# DuckDB's that make rows; others read files, or tell of what is hidden
TABLE_FUNCTIONS = words("range generate_series unnest json_each json_tree")
# PostgreSQL's types that hold nothing but values: a cast to a table's type, or to regclass, tells of what is hidden
TYPES = words(
    """
    bool boolean int2 int4 int8 smallint int integer bigint numeric decimal float4 float8 float real money text varchar char
    bpchar name citext date time timetz timestamp timestamptz interval json jsonb jsonpath uuid bytea bit varbit oid record
    tsvector tsquery point box circle line lseg path polygon macaddr macaddr8 cidr inet hstore int4range int8range numrange
    tsrange tstzrange daterange int4multirange int8multirange nummultirange tsmultirange tstzmultirange datemultirange
    """
)
