var z={zh:"zh-512e4fa3cc.json"};export{z as a};
