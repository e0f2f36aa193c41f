// Writes kryo/*.bin and bloom.tsv with Hudi's own classes (0.15.0 and 1.2.0 give the same bytes):
//   javac -cp "$BUNDLE:$SPARK_JARS/*" HudiGoldens.java
//   java --add-opens java.base/java.lang=ALL-UNNAMED --add-opens java.base/java.util=ALL-UNNAMED \
//        -cp ".:$BUNDLE:$SPARK_JARS/*" HudiGoldens OUTPUT_FOLDER
// where BUNDLE is hudi-spark3.5-bundle_2.12-0.15.0.jar. *.bin are the Kryo forms of delete block contents 1 and 2
// (kryo/expected.json holds what is in them), bloom.tsv holds Bloom filters: type, entries, largest number of entries,
// keys, false-positive rate, length and SHA-256 of the text, which of 200 further keys might be contained, short texts.
import java.nio.file.*; import java.util.*; import java.security.*;
import org.apache.hudi.common.model.*; import org.apache.hudi.common.util.SerializationUtils;
import org.apache.hudi.common.bloom.*;
public class HudiGoldens {
  static Path out;
  static void put(String name, Object o) throws Exception { Files.write(out.resolve(name + ".bin"), SerializationUtils.serialize(o)); }
  static DeleteRecord d(String k, String p, Comparable o) { return DeleteRecord.create(new HoodieKey(k, p), o); }
  static String fresh(String s) { return new String(s.toCharArray()); }
  static DeleteRecord[] recs(Comparable... os) {
    DeleteRecord[] r = new DeleteRecord[os.length];
    for (int i = 0; i < os.length; i++) r[i] = d(fresh("key-" + i), fresh("region=us"), os[i]);
    return r;
  }
  public static void main(String[] a) throws Exception {
    out = Paths.get(a[0]); Files.createDirectories(out);
    String shared = fresh("dt=2024-01-01");
    StringBuilder sb = new StringBuilder(); for (int i = 0; i < 20; i++) sb.append("0123456789"); 
    put("keys", new HoodieKey[]{ new HoodieKey("a", ""), new HoodieKey("key-1", shared), new HoodieKey("key-2", shared), new HoodieKey("z\u00fcrich", "\u6771\u4eac"),
      new HoodieKey("\ud83d\ude00x", null), new HoodieKey(sb.toString(), "p"), new HoodieKey("", "region=eu"), new HoodieKey(fresh("0123456789012345678901234567890123456789012345678901234567890123"), fresh("0123456789012345678901234567890123456789012345678901234567890123x"))});
    put("keys_empty", new HoodieKey[0]);
    put("long", recs(0L, 1L, -1L, 63L, 64L, -65L, 1700000000000000L, Long.MAX_VALUE, Long.MIN_VALUE));
    put("int", recs(0, 1, -1, 63, 64, -65, Integer.MAX_VALUE, Integer.MIN_VALUE));
    put("string", recs(fresh("2024-01-01"), fresh("x"), fresh(""), fresh("\u00e9t\u00e9"), sb.toString()));
    put("double", recs(0.0, -1.5, Double.NaN, Double.POSITIVE_INFINITY, Double.MIN_VALUE));
    put("float", recs(0.0f, -1.5f, Float.MAX_VALUE));
    put("bool", recs(true, false));
    put("short_byte", recs((short) -5, (byte) -7, (short) 300));
    put("null", new DeleteRecord[]{ DeleteRecord.create("k1", "p"), DeleteRecord.create(new HoodieKey("k2", "p"), (Comparable) null), DeleteRecord.create("k3", "p", 5L)});
    put("mixed", recs(0, 7L, fresh("s"), 0));
    HoodieKey hk = new HoodieKey("same", "p"); DeleteRecord dr = DeleteRecord.create(hk, 1L);
    put("shared", new DeleteRecord[]{ dr, dr, DeleteRecord.create(hk, 2L), null});
    put("decimal", recs(new java.math.BigDecimal("12.34"), new java.math.BigDecimal("-0.5")));
    put("timestamp", recs(new java.sql.Timestamp(1700000000000L)));
    List<String> lines = new ArrayList<>();
    int[][] cases = { {10, 25, 0}, {10, 25, 3}, {10, 25, 10}, {10, 25, 11}, {10, 25, 37}, {10,10,25}, {100, 250, 1000}, {60000, 100000, 3}, {60000, 100000, 130000}, {60000,100000,250000}, {7, 5, 20}};
    for (String type : new String[]{"DYNAMIC_V0", "SIMPLE"}) for (int[] c : cases) for (double p : new double[]{1e-9, 0.01}) {
      if (c[0] == 60000 && p == 0.01) continue;
      BloomFilter f = BloomFilterFactory.createBloomFilter(c[0], p, c[1], type);
      for (int i = 0; i < c[2]; i++) f.add(key(i));
      String text = f.serializeToString();
      String sha = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(text.getBytes()));
      StringBuilder hits = new StringBuilder();
      for (int i = c[2]; i < c[2] + 200; i++) hits.append(f.mightContain(key(i)) ? '1' : '0');
      lines.add(type + "\t" + c[0] + "\t" + c[1] + "\t" + c[2] + "\t" + p + "\t" + text.length() + "\t" + sha + "\t" + hits + "\t" + (text.length() < 600 ? text : ""));
    }
    Files.write(out.resolve("bloom.tsv"), lines);
  }
  static String key(int i) { String[] tails = {"", "\u00fc", "\u6771\u4eac", "x", "yz", "\ud83d\ude00"}; return "key-" + i + tails[i % 6]; }
}
