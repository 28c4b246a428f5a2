/* SHA-256 (FIPS 180-4), a block at a time: 112 bytes of memory and no table but its constants. */

struct sha256 {
    uint32_t state[8];
    uint64_t n_bytes;
    unsigned char block[64];
};

static uint32_t turned_right(uint32_t word, unsigned n)
{
    return word >> n | word << (32u - n);
}

static void sha256_block(struct sha256 *hash)
{
    static const uint32_t constants[64] = {
        0x428a2f98u, 0x71374491u, 0xb5c0fbcfu, 0xe9b5dba5u, 0x3956c25bu, 0x59f111f1u, 0x923f82a4u,
        0xab1c5ed5u, 0xd807aa98u, 0x12835b01u, 0x243185beu, 0x550c7dc3u, 0x72be5d74u, 0x80deb1feu,
        0x9bdc06a7u, 0xc19bf174u, 0xe49b69c1u, 0xefbe4786u, 0x0fc19dc6u, 0x240ca1ccu, 0x2de92c6fu,
        0x4a7484aau, 0x5cb0a9dcu, 0x76f988dau, 0x983e5152u, 0xa831c66du, 0xb00327c8u, 0xbf597fc7u,
        0xc6e00bf3u, 0xd5a79147u, 0x06ca6351u, 0x14292967u, 0x27b70a85u, 0x2e1b2138u, 0x4d2c6dfcu,
        0x53380d13u, 0x650a7354u, 0x766a0abbu, 0x81c2c92eu, 0x92722c85u, 0xa2bfe8a1u, 0xa81a664bu,
        0xc24b8b70u, 0xc76c51a3u, 0xd192e819u, 0xd6990624u, 0xf40e3585u, 0x106aa070u, 0x19a4c116u,
        0x1e376c08u, 0x2748774cu, 0x34b0bcb5u, 0x391c0cb3u, 0x4ed8aa4au, 0x5b9cca4fu, 0x682e6ff3u,
        0x748f82eeu, 0x78a5636fu, 0x84c87814u, 0x8cc70208u, 0x90befffau, 0xa4506cebu, 0xbef9a3f7u,
        0xc67178f2u,
    };
    uint32_t words[16], now[8]; /* the last sixteen of the schedule */
    for (int i = 0; i < 16; i++) {
        const unsigned char *bytes = hash->block + 4 * i;
        words[i] = (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 |
                   bytes[3];
    }
    memcpy(now, hash->state, sizeof now);
    for (int i = 0; i < 64; i++) {
        const uint32_t a = now[0], e = now[4];
        const uint32_t chosen = (e & now[5]) ^ (~e & now[6]);
        const uint32_t most = (a & now[1]) ^ (a & now[2]) ^ (now[1] & now[2]);
        const uint32_t mixed_e = turned_right(e, 6) ^ turned_right(e, 11) ^ turned_right(e, 25);
        const uint32_t mixed_a = turned_right(a, 2) ^ turned_right(a, 13) ^ turned_right(a, 22);
        uint32_t sum = now[7] + mixed_e + chosen + constants[i];
        if (i >= 16) {
            const uint32_t early = words[(i + 1) % 16], late = words[(i + 14) % 16];
            words[i % 16] += turned_right(early, 7) ^ turned_right(early, 18) ^ early >> 3;
            words[i % 16] += turned_right(late, 17) ^ turned_right(late, 19) ^ late >> 10;
            words[i % 16] += words[(i + 9) % 16];
        }
        sum += words[i % 16];
        memmove(now + 1, now, 7 * sizeof now[0]);
        now[4] += sum;
        now[0] = sum + mixed_a + most;
    }
    for (int i = 0; i < 8; i++) hash->state[i] += now[i];
}

static void sha256_begin(struct sha256 *hash)
{
    static const uint32_t initial[8] = {0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
                                        0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u};
    memcpy(hash->state, initial, sizeof initial);
    hash->n_bytes = 0;
}

static void sha256_add(struct sha256 *hash, const void *bytes, size_t n)
{
    const unsigned char *from = bytes;
    while (n) {
        const size_t held = (size_t)(hash->n_bytes % 64), room = 64 - held;
        const size_t part = n < room ? n : room;
        memcpy(hash->block + held, from, part);
        hash->n_bytes += part;
        from += part;
        n -= part;
        if (part == room) sha256_block(hash);
    }
}

/* Ends the hash and writes it as 64 hexadecimal digits and a zero. */
static void sha256_end(struct sha256 *hash, char hex[65])
{
    const uint64_t n_bits = hash->n_bytes * 8;
    const unsigned char one = 0x80, zero = 0;
    unsigned char length[8];
    sha256_add(hash, &one, 1);
    while (hash->n_bytes % 64 != 56) sha256_add(hash, &zero, 1);
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(n_bits >> (56 - 8 * i));
    sha256_add(hash, length, sizeof length);
    for (int i = 0; i < 64; i++) {
        hex[i] = "0123456789abcdef"[hash->state[i / 8] >> (28 - 4 * (i % 8)) & 15u];
    }
    hex[64] = 0;
}
