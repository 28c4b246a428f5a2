/* Numbers of 16 bits as IEEE 754 has them; only what lies outside of the graphs is stored so. */
static inline float edgefold_of_half(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, rest = half & 0x7fffu;
    const uint32_t bits = (rest << 13) + (rest >= 0x7c00u ? 0x70000000u : 0x38000000u);
    const float small = (float)(int32_t)rest * 5.9604644775390625e-8f; /* below 2^-14: of 2^-24 */
    return edgefold_of_bits(sign | (rest < 0x400u ? edgefold_bits(small) : bits));
}

/* Rounds half to even; numbers beyond 65504 become infinite. */
static inline uint16_t edgefold_to_half(float x)
{
    const uint32_t bits = edgefold_bits(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    uint32_t half;
    if (size > 0x7f800000u)
        half = 0x7e00u;
    else if (size >= 0x47800000u)
        half = 0x7c00u;
    else if (size < 0x38800000u) /* below 2^-14: in steps of 2^-24 */
        half = edgefold_bits(edgefold_of_bits(size) + 0.5f) - 0x3f000000u;
    else
        half = (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
    return (uint16_t)(sign | half);
}
