// Products of up to 64 rows with a matrix of four bits, and the same matrix in sixteen.
//
// Compiled when first needed, for one shape of work at a time:
//   TILES     tiles of eight rows of x
//   WARPS     parts of the long side, each a warp's
//   BLOCKS    blocks of 16 rows of the matrix; of a gated product half are the gate's, half what it gates
//   AHEAD     turns whose part of the matrix is on its way, an even number
//   GROUP     turns that share a scale
//   RESIDENT  programs that are to be on a processor at once
//   IS_HALF   float16 in place of bfloat16
//   HAS_ZEROS, HAS_BIAS, HAS_RESIDUAL, IS_GATED, NORMS: what there is to be done
//   ACTIVATION as in activations.py
//
// A turn is 64 columns. Of them a lane has 16 neighbours, of rows g and g + 8 of a block, as two operands of four steps.
// Four bits lie in that order: a lane's four columns of a step, for both rows, are one word. They become the lowest ones
// of a number that is MIDDLE without them; what MIDDLE and zero are too much is taken off with the sum of x, for which x
// is multiplied with ones. The norm's sum of squares is x multiplied with itself, whose diagonal it is.

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;

#if IS_HALF
#define MAGIC 0x64006400u
#define MIDDLE 1024.0f
#define ONES 0x3C003C00u
#define KIND "f16"
#else
#define MAGIC 0x43004300u
#define MIDDLE 128.0f
#define ONES 0x3F803F80u
#define KIND "bf16"
#endif

__device__ __forceinline__ float wide(u16 value) {
    float result;
#if IS_HALF
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value));
#else
    result = __uint_as_float((u32)value << 16);
#endif
    return result;
}

typedef u16 Scale;  // float16, whatever x is

__device__ __forceinline__ float wide_scale(Scale value) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value));
    return result;
}

__device__ __forceinline__ u32 twice(float value) {
    u32 result;
    asm("cvt.rn." KIND "x2.f32 %0, %1, %1;" : "=r"(result) : "f"(value));
    return result;
}

__device__ __forceinline__ u16 narrow(float value) { return (u16)(twice(value) & 0xFFFF); }

__device__ __forceinline__ u32 product_and_sum(u32 numbers, u32 factors, u32 addends) {
    u32 result;
    asm("fma.rn." KIND "x2 %0, %1, %2, %3;" : "=r"(result) : "r"(numbers), "r"(factors), "r"(addends));
    return result;
}

__device__ __forceinline__ void multiply(float *sums, const u32 *a, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32." KIND "." KIND ".f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint4 read_once(const uint4 *place) {
    uint4 found;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w)
                 : "l"(place));
    return found;
}

// Four bits of each half as the lowest of a number: one instruction, which the compiler does not find.
__device__ __forceinline__ u32 placed(u32 word) {
    u32 result;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(result) : "r"(word), "n"(0x000F000F), "r"(MAGIC));
    return result;
}

#ifdef PRODUCT

__device__ __forceinline__ float activated(float y) {
#if ACTIVATION == 1
    return y / (1.0f + __expf(-y));
#elif ACTIVATION == 2
    return 0.5f * y * (1.0f + erff(y * 0.7071067811865476f));
#elif ACTIVATION == 3
    return y / (1.0f + __expf(-1.5957691216057308f * (y + 0.044715f * y * y * y)));
#elif ACTIVATION == 4
    return fmaxf(y, 0.0f);
#elif ACTIVATION == 5
    return fmaxf(y, 0.0f) * fmaxf(y, 0.0f);
#else
    return y;
#endif
}

#define COLUMNS (TILES * 8)
#define RESULTS (IS_GATED ? BLOCKS * 8 : BLOCKS * 16)
#define READS_X_EARLY (TILES <= 2)

// What a turn reads of the matrix.
struct Turn {
    uint4 codes[BLOCKS];
    Scale scales[BLOCKS][2];
#if HAS_ZEROS
    u8 zeros[BLOCKS][2];
#endif
};

__device__ __forceinline__ void read_turn(Turn &turn, const uint4 *const *own, const Scale *scales, const u8 *zeros,
                                          const int *row, int span, int height) {
    const int group = span / GROUP * height;
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        turn.codes[b] = read_once(own[b] + span * 32);
        turn.scales[b][0] = scales[group + row[b]], turn.scales[b][1] = scales[group + row[b] + 8];
#if HAS_ZEROS
        turn.zeros[b][0] = zeros[group + row[b]], turn.zeros[b][1] = zeros[group + row[b] + 8];
#endif
    }
}

__device__ __forceinline__ void read_x(u32 pairs[TILES][8], const uint4 *const *values, int span) {
#pragma unroll
    for (int c = 0; c < TILES; c++) {
        const uint4 first = values[c][span * 8], second = values[c][span * 8 + 1];
        pairs[c][0] = first.x, pairs[c][1] = first.y, pairs[c][2] = first.z, pairs[c][3] = first.w;
        pairs[c][4] = second.x, pairs[c][5] = second.y, pairs[c][6] = second.z, pairs[c][7] = second.w;
    }
}

// The operand of one step from what was read of a block.
__device__ __forceinline__ void operand(const uint4 &codes, int s, u32 *a) {
    const u32 word = s == 0 ? codes.x : s == 1 ? codes.y : s == 2 ? codes.z : codes.w;
    a[0] = placed(word), a[1] = placed(word >> 4), a[2] = placed(word >> 8), a[3] = placed(word >> 12);
}

// Steps of all blocks by turns, so that none waits for the one before it.
__device__ __forceinline__ void add_products(float acc[BLOCKS][TILES][4], float *squares, const Turn &turn,
                                             const u32 pairs[TILES][8]) {
    float part[BLOCKS][TILES][4] = {};
    const u32 ones[4] = {ONES, ONES, ONES, ONES};
    float totals[TILES][4] = {};
#pragma unroll
    for (int s = 0; s < 4; s++) {
#pragma unroll
        for (int c = 0; c < TILES; c++) multiply(totals[c], ones, pairs[c][2 * s], pairs[c][2 * s + 1]);
#if NORMS
        const u32 own[4] = {pairs[0][2 * s], 0, pairs[0][2 * s + 1], 0};
        multiply(squares, own, pairs[0][2 * s], pairs[0][2 * s + 1]);
#endif
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            u32 a[4];
            operand(turn.codes[b], s, a);
#pragma unroll
            for (int c = 0; c < TILES; c++) multiply(part[b][c], a, pairs[c][2 * s], pairs[c][2 * s + 1]);
        }
    }
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        const float scale_low = wide_scale(turn.scales[b][0]), scale_high = wide_scale(turn.scales[b][1]);
#if HAS_ZEROS
        const float zero_low = MIDDLE + (float)turn.zeros[b][0], zero_high = MIDDLE + (float)turn.zeros[b][1];
#else
        const float zero_low = MIDDLE + 8.0f, zero_high = zero_low;
#endif
#pragma unroll
        for (int c = 0; c < TILES; c++) {
            part[b][c][0] -= zero_low * totals[c][0], part[b][c][1] -= zero_low * totals[c][1];
            part[b][c][2] -= zero_high * totals[c][0], part[b][c][3] -= zero_high * totals[c][1];
            acc[b][c][0] += part[b][c][0] * scale_low, acc[b][c][1] += part[b][c][1] * scale_low;
            acc[b][c][2] += part[b][c][2] * scale_high, acc[b][c][3] += part[b][c][3] * scale_high;
        }
    }
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, RESIDENT)
int4_product(const uint4 *codes, const Scale *scales, const u8 *zeros, const u16 *x, const u16 *bias,
             const u16 *residual, u16 *out, float eps, int m_count, int n_count, int k_count, int stride_x,
             int stride_residual, int stride_out, int activate_to) {
    __shared__ float sums[WARPS][BLOCKS * 16][COLUMNS + 1];
    __shared__ float squares[WARPS][COLUMNS];
    float own_squares[4] = {};
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int spans = k_count / 64, height = IS_GATED ? 2 * n_count : n_count;
    const uint4 *own[BLOCKS];
    int row[BLOCKS];
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        const int last = n_count / 16 - 1, half = BLOCKS / 2;
        const int block = IS_GATED ? min((int)blockIdx.x * half + b % half, last) + (b / half) * (n_count / 16)
                                   : min((int)blockIdx.x * BLOCKS + b, last);
        row[b] = block * 16 + g;
        own[b] = codes + (size_t)block * spans * 32 + lane;
    }
    Turn turns[AHEAD];
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
        if (warp + u * WARPS < spans)
            read_turn(turns[u], own, scales, zeros, row, warp + u * WARPS, height);
    asm volatile("griddepcontrol.wait;" ::: "memory");  // the matrix does not depend on the launch before, x does
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    const uint4 *values[TILES];
#pragma unroll
    for (int c = 0; c < TILES; c++)
        values[c] = (const uint4 *)(x + (size_t)min(c * 8 + g, m_count - 1) * stride_x + t * 16);
    u32 pairs[2][TILES][8];
    if (READS_X_EARLY && warp < spans) read_x(pairs[0], values, warp);
    float acc[BLOCKS][TILES][4] = {};
    for (int base = warp; base < spans; base += WARPS * AHEAD) {
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const int span = base + u * WARPS, after = span + WARPS, ahead = span + WARPS * AHEAD;
            if (span < spans) {
                if (!READS_X_EARLY) read_x(pairs[u % 2], values, span);
                if (READS_X_EARLY && after < spans) read_x(pairs[(u + 1) % 2], values, after);
                add_products(acc, own_squares, turns[u], pairs[u % 2]);
                if (ahead < spans) read_turn(turns[u], own, scales, zeros, row, ahead, height);
            }
        }
    }
#pragma unroll
    for (int b = 0; b < BLOCKS; b++)
#pragma unroll
        for (int c = 0; c < TILES; c++) {
            sums[warp][b * 16 + g][c * 8 + t * 2] = acc[b][c][0];
            sums[warp][b * 16 + g][c * 8 + t * 2 + 1] = acc[b][c][1];
            sums[warp][b * 16 + g + 8][c * 8 + t * 2] = acc[b][c][2];
            sums[warp][b * 16 + g + 8][c * 8 + t * 2 + 1] = acc[b][c][3];
        }
    if (NORMS && t == g / 2) squares[warp][g] = own_squares[g % 2];
    __syncthreads();
    for (int i = threadIdx.x; i < RESULTS * COLUMNS; i += WARPS * 32) {
        const int r = i % RESULTS, m = i / RESULTS, n = blockIdx.x * RESULTS + r;
        if (n >= n_count || m >= m_count) continue;
        float y = 0.0f, other = 0.0f, scale = 1.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            y += sums[w][r][m];
#if IS_GATED
            other += sums[w][RESULTS + r][m];
#endif
        }
#if NORMS
        float total = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) total += squares[w][m];
        scale = rsqrtf(total / k_count + eps);
#endif
        y *= scale, other *= scale;
#if HAS_BIAS
        y += wide(bias[n]);
        if (IS_GATED) other += wide(bias[n_count + n]);
#endif
#if IS_GATED
        y = activated(y) * other;
#else
        if (n < activate_to) y = activated(y);
#endif
#if HAS_RESIDUAL
        y += wide(residual[(size_t)m * stride_residual + n]);
#endif
        out[(size_t)m * stride_out + n] = narrow(y);
    }
}

#else

extern "C" __global__ void __launch_bounds__(256)
int4_unpack(const uint4 *words, const Scale *scales, const u8 *zeros, u16 *out, int height, int k_count) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int spans = k_count / 64, span = blockIdx.y * 8 + warp;
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    if (span >= spans) return;
    const uint4 found = read_once(words + ((size_t)blockIdx.x * spans + span) * 32 + lane);
    const u32 word[4] = {found.x, found.y, found.z, found.w};
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = blockIdx.x * 16 + g + 8 * h;
        const size_t place = (size_t)(span / GROUP) * height + row;
        const float scale = wide_scale(scales[place]);
#if HAS_ZEROS
        const float zero = (float)zeros[place];
#else
        const float zero = 8.0f;
#endif
        u32 pairs[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const u32 bits = word[i / 2] >> (4 * h + 8 * (i % 2));
            const u32 low = narrow(((float)(bits & 15) - zero) * scale);
            const u32 high = narrow(((float)((bits >> 16) & 15) - zero) * scale);
            pairs[i] = low | (high << 16);
        }
        uint4 *target = (uint4 *)(out + (size_t)row * k_count + span * 64 + t * 16);
        target[0] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        target[1] = make_uint4(pairs[4], pairs[5], pairs[6], pairs[7]);
    }
}

#endif
